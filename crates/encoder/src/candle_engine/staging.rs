//! Transfers the small tables of a batch (token ids, positions, masks, weights) to the device.
//!
//! The tables are collected in two blocks, one of indices and one of numbers. Each block is transferred with one copy.
//! On an NVIDIA GPU, the copy reads page-locked memory and runs on a separate stream, in parallel with the computation.

use std::ops::Range;

use candle_core::{Device, Result, Shape, Tensor};

#[cfg(feature = "cuda")]
use crate::candle_engine::pinned::{Pinned, Slot};

/// Tables of a batch in the memory of the CPU, before they are copied to the device. Each field is a block that
/// contains several tables.
#[derive(Default)]
pub(super) struct Tables {
    indices: Vec<u32>,
    numbers: Vec<f32>,
}

/// Range of one table in the block of indices of [`Tables`].
pub(super) struct Indices(Range<usize>);

/// Range of one table in the block of numbers of [`Tables`].
pub(super) struct Numbers(Range<usize>);

impl Tables {
    pub(super) fn indices(&mut self, values: impl IntoIterator<Item = u32>) -> Indices {
        let start = self.indices.len();
        self.indices.extend(values);
        Indices(start..self.indices.len())
    }

    pub(super) fn numbers(&mut self, values: impl IntoIterator<Item = f32>) -> Numbers {
        let start = self.numbers.len();
        self.numbers.extend(values);
        Numbers(start..self.numbers.len())
    }
}

/// Tables of a batch in the memory of the device.
pub(super) struct Sent<'a> {
    indices: Tensor,
    numbers: Tensor,
    /// Reusable memory in which the tables are stored. The memory is returned to [`Pinned`] on drop.
    #[cfg(feature = "cuda")]
    slot: Option<(Slot, &'a Pinned)>,
    #[cfg(not(feature = "cuda"))]
    stage: std::marker::PhantomData<&'a Stage>,
}

impl Sent<'_> {
    pub(super) fn indices(&self, table: &Indices) -> Result<Tensor> {
        self.indices.narrow(0, table.0.start, table.0.len())
    }

    pub(super) fn numbers(&self, table: &Numbers, shape: impl Into<Shape>) -> Result<Tensor> {
        self.numbers.narrow(0, table.0.start, table.0.len())?.reshape(shape.into())
    }
}

#[cfg(feature = "cuda")]
impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let Some((slot, pinned)) = self.slot.take() {
            pinned.give_back(slot);
        }
    }
}

/// Copies the tables of batches to a device.
pub(super) struct Stage {
    device: Device,
    #[cfg(feature = "cuda")]
    pinned: Option<Pinned>,
}

impl Stage {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Stage {
            device: device.clone(),
            #[cfg(feature = "cuda")]
            pinned: Pinned::new(device)?,
        })
    }

    /// Copies the tables of a batch to the device. Can run while another batch is computed.
    pub(super) fn send(&self, tables: Tables) -> Result<Sent<'_>> {
        #[cfg(feature = "cuda")]
        if let Some(pinned) = &self.pinned {
            let mut slot = pinned.take();
            let indices = slot.indices.send(&tables.indices, pinned)?;
            let numbers = slot.numbers.send(&tables.numbers, pinned)?;
            return Ok(Sent { indices, numbers, slot: Some((slot, pinned)) });
        }
        let Tables { indices, numbers } = tables;
        let (n, m) = (indices.len(), numbers.len());
        Ok(Sent {
            indices: Tensor::from_vec(indices, n, &self.device)?,
            numbers: Tensor::from_vec(numbers, m, &self.device)?,
            #[cfg(feature = "cuda")]
            slot: None,
            #[cfg(not(feature = "cuda"))]
            stage: std::marker::PhantomData,
        })
    }
}
