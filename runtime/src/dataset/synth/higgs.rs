//! Collisions of particles, roughly: in half of them two pairs of jets come from heavy particles, and their masses say so.

use super::Random;

pub const WIDTH: usize = 28;
const JETS: usize = 4;
/// How sharply the masses of real pairs lie around 1.
const MASS_SPREAD: f64 = 0.25;
/// How many signals show nothing.
const LOST: f64 = 0.25;
const HALF_TURN: f64 = std::f64::consts::PI;

pub const RULE: &str = "28 f32 in the order of the HIGGS data set: of a lepton pt, eta, phi; of the missing energy pt, phi; of \
    four jets pt, eta, phi, b-tag; then seven masses derived from them: jj (jets 1 2), jjj (jets 1 2 3), lv, jlv (with jet \
    3), bb (jets 3 4), wbb (jets 1 2 3 4), wwbb (everything). pt = 0.2 + 0.8 u + 1.2 v^4, eta = a sum of four uniforms of \
    deviation 1, phi uniform over a turn, b-tag 0 or 1.09 or 2.17 (jets 3 and 4: twice as often). Class 1 is a fair coin; \
    of class 1, three quarters have the pt of jets 1 2 and of jets 3 4 scaled so that jj and bb are 1 + 0.25 g";

#[derive(Clone, Copy, Default)]
struct Particle {
    pt: f64,
    eta: f64,
    phi: f64,
}

impl Particle {
    fn new(random: &mut Random) -> Self {
        let soft = 0.2 + 0.8 * random.uniform();
        let hard = random.uniform();
        Self {
            pt: soft + 1.2 * hard * hard * hard * hard,
            eta: random.bell(),
            phi: (random.uniform() * 2.0 - 1.0) * HALF_TURN,
        }
    }
}

/// Adds a sample and gives its label.
pub fn sample(random: &mut Random, into: &mut Vec<u8>) -> bool {
    let signal = random.happens(0.5);
    let lepton = Particle::new(random);
    let missing = Particle { eta: 0.0, ..Particle::new(random) };
    let mut jets: [Particle; JETS] = std::array::from_fn(|_| Particle::new(random));
    let tags: [f64; JETS] = std::array::from_fn(|jet| {
        let likely = if jet < 2 { 0.3 } else { 0.6 };
        if !random.happens(likely) {
            0.0
        } else if random.happens(0.5) {
            1.09
        } else {
            2.17
        }
    });
    let shows = !random.happens(LOST);
    for pair in jets.chunks_exact_mut(2) {
        let wanted = (1.0 + MASS_SPREAD * random.bell()).max(0.05);
        let have = mass(pair);
        // Jets that fly side by side have no mass that could be scaled.
        if signal && shows && have > 0.05 {
            pair.iter_mut().for_each(|jet| jet.pt *= wanted / have);
        }
    }
    let [one, two, three, four] = jets;
    let measured = [lepton.pt, lepton.eta, lepton.phi, missing.pt, missing.phi];
    let of_jets = jets.iter().zip(tags).flat_map(|(jet, tag)| [jet.pt, jet.eta, jet.phi, tag]);
    let derived = [
        mass(&[one, two]),
        mass(&[one, two, three]),
        mass(&[lepton, missing]),
        mass(&[three, lepton, missing]),
        mass(&[three, four]),
        mass(&jets),
        mass(&[one, two, three, four, lepton, missing]),
    ];
    for value in measured.into_iter().chain(of_jets).chain(derived) {
        into.extend_from_slice(&(value as f32).to_le_bytes());
    }
    signal
}

/// The mass of particles that have none alone: m² = Σ 2 pt pt' (cosh Δeta - cos Δphi) over pairs.
fn mass(particles: &[Particle]) -> f64 {
    let mut square = 0.0;
    for (index, one) in particles.iter().enumerate() {
        for other in &particles[index + 1..] {
            let apart = (one.phi - other.phi).abs();
            let turn = if apart > HALF_TURN { 2.0 * HALF_TURN - apart } else { apart };
            let opening = even_series(one.eta - other.eta, 1.0) - even_series(turn, -1.0);
            square += 2.0 * one.pt * other.pt * opening.max(0.0);
        }
    }
    square.sqrt()
}

/// cosh x (`sign` 1) or cos x (`sign` -1) by its series: the same bits on every machine.
fn even_series(x: f64, sign: f64) -> f64 {
    const TERMS: u32 = 16;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..TERMS {
        term *= sign * x * x / f64::from((2 * k - 1) * 2 * k);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_are_cosine_and_hyperbolic_cosine() {
        for step in -70..=70 {
            let x = f64::from(step) / 10.0;
            assert!((even_series(x, 1.0) - x.cosh()).abs() < 1e-6 * x.cosh(), "cosh {x}");
            if x.abs() <= HALF_TURN {
                assert!((even_series(x, -1.0) - x.cos()).abs() < 1e-12, "cos {x}");
            }
        }
    }

    #[test]
    fn two_opposite_particles_have_the_sum_of_their_momenta_as_mass() {
        let particle = |phi| Particle { pt: 1.5, eta: 0.0, phi };
        assert!((mass(&[particle(0.0), particle(HALF_TURN)]) - 3.0).abs() < 1e-9);
    }
}
