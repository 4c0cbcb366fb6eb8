use super::*;

/// All that there is to do with vectors, once.
struct Everything;

fn numbers() -> [Floats; SIXTEEN] {
    std::array::from_fn(|row| std::array::from_fn(|lane| (row * SIXTEEN + lane) as f32))
}

impl Kernel for Everything {
    type Output = Vec<Floats>;

    #[inline(always)]
    fn run<V: Sixteen>(self) -> Vec<Floats> {
        let numbers = numbers();
        let rows = numbers.map(|row| V::load(&row));
        let (a, b) = (rows[3], rows[5]);
        let mut results: Vec<V> = V::transpose(rows).to_vec();
        results.extend([a.add(b), a.sub(b), a.scale(0.5), a.add_scaled(2.0, b), V::splat(7.0)]);
        results.extend([0, 1, 7, 8, 9, 15, 16, 20].map(|count| V::load_some(&numbers.as_flattened()[30..][..count])));
        let mut floats: Vec<Floats> = results
            .into_iter()
            .map(|result| {
                let mut floats = [0.0; SIXTEEN];
                result.store(&mut floats);
                floats
            })
            .collect();
        floats.extend([0, 1, 7, 8, 9, 15, 16].map(|count| {
            let mut floats = [-1.0; SIXTEEN];
            a.store_some(&mut floats[..count]);
            floats
        }));
        floats
    }
}

#[test]
fn every_width_computes_the_same() {
    let plain = Everything.run::<Plain>();
    let numbers = numbers();
    assert_eq!(plain[2][9], numbers[9][2]);
    assert_eq!(plain[SIXTEEN + 3], std::array::from_fn(|lane| numbers[3][lane] + 2.0 * numbers[5][lane]));
    assert_eq!(run(Everything), plain);
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there.
        assert_eq!(unsafe { avx::with_avx2(Everything) }, plain);
    }
}
