//! Samples in the shape and size that was asked for.

use super::resize::Resize;
use super::{BuildError, Options, describe_features, shape_text};
use crate::dataset::rows::{Features, Rows, Values};

/// What is done to the rows of one source.
pub struct Prepare {
    /// What samples are afterwards.
    pub features: Features,
    resize: Option<Resize>,
}

impl Prepare {
    pub fn new(features: &Features, options: &Options) -> Result<Self, BuildError> {
        let mut features = features.clone();
        if let Some(shape) = &options.shape {
            let need = shape.iter().fold(1, |width: usize, size| width.saturating_mul(*size));
            let (described, have) = (describe_features(&features), features.width());
            match &mut features {
                Features::Dense { shape: old, .. } if have == need => old.clone_from(shape),
                _ => {
                    let shape = shape_text(shape);
                    return Err(BuildError::Shape { features: described, shape, have, need });
                }
            }
        }
        let Some((height, width)) = options.resize else { return Ok(Self { features, resize: None }) };
        let described = describe_features(&features);
        let Features::Dense { element, shape } = &mut features else { return Err(BuildError::NoImage(described)) };
        let element = *element;
        let [.., old_height, old_width] = shape.as_mut_slice() else { return Err(BuildError::NoImage(described)) };
        let from = (*old_height, *old_width);
        (*old_height, *old_width) = (height, width);
        if !matches!(shape.len(), 2 | 3) {
            return Err(BuildError::NoImage(described));
        }
        crate::dataset::manifest::check_features(&features).map_err(|_| BuildError::Size(height, width))?;
        let resize = Resize::new(element, from, (height, width)).ok_or(BuildError::NoImage(described))?;
        Ok(Self { features, resize: (from != (height, width)).then_some(resize) })
    }

    pub fn run(&self, rows: &mut Rows) {
        if let (Some(resize), Values::Dense(bytes)) = (&self.resize, &mut rows.features) {
            let mut resized = Vec::new();
            resize.run(bytes, &mut resized);
            *bytes = resized;
        }
    }
}
