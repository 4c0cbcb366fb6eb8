//! The cart and its pole: the classic control problem of Barto, Sutton and Anderson, as Gym has it.

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = CART_MASS + POLE_MASS;
/// Half of the pole's.
const LENGTH: f64 = 0.5;
const FORCE: f64 = 10.0;
/// Seconds between two moves.
const TICK: f64 = 0.02;
/// How far the cart may go from the middle.
const TRACK: f64 = 2.4;
/// How far the pole may lean: 12 degrees.
const LEAN: f64 = 12.0 * std::f64::consts::PI / 180.0;

#[derive(Clone, Copy, Debug)]
pub struct Cart {
    position: f64,
    velocity: f64,
    angle: f64,
    angular_velocity: f64,
}

impl Cart {
    /// Almost upright, at random; `random` gives numbers from 0 to 1.
    pub fn new(mut random: impl FnMut() -> f64) -> Self {
        let mut near_zero = || random() / 10.0 - 0.05;
        Self { position: near_zero(), velocity: near_zero(), angle: near_zero(), angular_velocity: near_zero() }
    }

    /// What a policy sees of it.
    pub fn state(&self) -> [f32; 4] {
        [self.position, self.velocity, self.angle, self.angular_velocity].map(|value| value as f32)
    }

    /// One move: pushed to the right, or to the left.
    pub fn push(&mut self, right: bool) {
        let force = if right { FORCE } else { -FORCE };
        let (sine, cosine) = self.angle.sin_cos();
        let swing = POLE_MASS * LENGTH * self.angular_velocity.powi(2) * sine;
        let push = (force + swing) / TOTAL_MASS;
        let inertia = LENGTH * (4.0 / 3.0 - POLE_MASS * cosine.powi(2) / TOTAL_MASS);
        let angular_acceleration = (GRAVITY * sine - cosine * push) / inertia;
        let acceleration = push - POLE_MASS * LENGTH * angular_acceleration * cosine / TOTAL_MASS;
        self.position += TICK * self.velocity;
        self.velocity += TICK * acceleration;
        self.angle += TICK * self.angular_velocity;
        self.angular_velocity += TICK * angular_acceleration;
    }

    /// Whether the episode is over.
    pub fn has_fallen(&self) -> bool {
        self.position.abs() > TRACK || self.angle.abs() > LEAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cart_that_is_pushed_one_way_drops_its_pole_the_other_way() {
        let mut cart = Cart::new(|| 0.5);
        let mut moves = 0;
        while !cart.has_fallen() {
            cart.push(true);
            moves += 1;
        }
        assert!(cart.angle < -LEAN && cart.position > 0.0, "{cart:?}");
        assert!((5..15).contains(&moves), "{moves}");
    }

    #[test]
    fn leaning_against_the_fall_balances_for_long() {
        let mut cart = Cart::new(|| 0.7);
        for _ in 0..200 {
            assert!(!cart.has_fallen());
            let right = cart.angle + 0.3 * cart.angular_velocity + 0.02 * cart.position + 0.06 * cart.velocity > 0.0;
            cart.push(right);
        }
    }
}
