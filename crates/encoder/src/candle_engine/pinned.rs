//! Page-locked memory and a copy stream, which copy a batch to an NVIDIA GPU while another batch is computed.
//!
//! A slot consists of page-locked memory on the host and memory on the device, and is reused. A batch uses a slot from
//! its preparation until its vectors are read. Two batches run at a time, so two slots are created.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{
    CpuStorage, CudaStorage, Device, InplaceOp1, Layout, Result, Tensor, WithDType,
    cuda_backend::{
        CudaDType,
        cudarc::driver::{CudaEvent, CudaStream, DeviceRepr, DriverError, PinnedHostSlice, ValidAsZeroBits},
    },
};

/// Minimum capacity of a [`Lane`], in elements of four bytes.
const MIN_LENGTH: usize = 64 << 10;

/// Type of the elements in page-locked memory: `u32` or `f32`.
pub(super) trait Element: WithDType + CudaDType + DeviceRepr + ValidAsZeroBits {}
impl Element for u32 {}
impl Element for f32 {}

/// Pool of reusable slots, through which the tables of batches are copied to an NVIDIA GPU.
pub(super) struct Pinned {
    device: Device,
    /// Stream of the computations.
    main: Arc<CudaStream>,
    /// Stream of the copies.
    copies: Arc<CudaStream>,
    free: Mutex<Vec<Slot>>,
}

impl Pinned {
    /// Creates the copy stream. Returns `None` if the device is not an NVIDIA GPU.
    pub(super) fn new(device: &Device) -> Result<Option<Self>> {
        let Device::Cuda(cuda) = device else { return Ok(None) };
        let main = cuda.cuda_stream();
        let copies = main.context().new_stream().map_err(driver)?;
        Ok(Some(Pinned { device: device.clone(), main, copies, free: Mutex::default() }))
    }

    /// Takes a free slot out of the pool, or creates a new slot if none is free.
    pub(super) fn take(&self) -> Slot {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, slot: Slot) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}

/// Memory for the tables of one batch.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) indices: Lane<u32>,
    pub(super) numbers: Lane<f32>,
}

/// Memory for elements of one type; allocated at the first use.
pub(super) struct Lane<T>(Option<Blocks<T>>);

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane(None)
    }
}

struct Blocks<T> {
    host: PinnedHostSlice<T>,
    device: Tensor,
    /// Event that signals the end of the last copy from the page-locked memory.
    copied: Option<CudaEvent>,
}

impl<T: Element> Lane<T> {
    /// Starts a copy of the values to a tensor on the device. Returns the tensor without waiting for the copy. Later
    /// computations on the device wait for the copy.
    pub(super) fn send(&mut self, values: &[T], pinned: &Pinned) -> Result<Tensor> {
        let blocks = match &mut self.0 {
            Some(blocks) if blocks.host.len() >= values.len() => blocks,
            grown => grown.insert(Blocks::new(values.len().next_power_of_two().max(MIN_LENGTH), pinned)?),
        };
        blocks.send(values, pinned)?;
        blocks.device.narrow(0, 0, values.len())
    }
}

impl<T: Element> Blocks<T> {
    fn new(length: usize, pinned: &Pinned) -> Result<Self> {
        // SAFETY: every bit pattern is a valid element, and the memory is written before it is read.
        let host = unsafe { pinned.main.context().alloc_pinned(length) }.map_err(driver)?;
        let device = Tensor::zeros(length, <T as WithDType>::DTYPE, &pinned.device)?;
        Ok(Blocks { host, device, copied: None })
    }

    fn send(&mut self, values: &[T], pinned: &Pinned) -> Result<()> {
        if let Some(copied) = self.copied.take() {
            copied.synchronize().map_err(driver)?;
        }
        let host = &mut self.host.as_mut_slice().map_err(driver)?[..values.len()];
        host.copy_from_slice(values);
        self.device.inplace_op1(&CopyIn { from: host, copies: &pinned.copies })?;
        self.copied = Some(pinned.copies.record_event(None).map_err(driver)?);
        pinned.main.join(&pinned.copies).map_err(driver)
    }
}

/// Operation that copies page-locked memory to the start of a tensor on the device.
struct CopyIn<'a, T> {
    from: &'a [T],
    copies: &'a Arc<CudaStream>,
}

impl<T: Element> InplaceOp1 for CopyIn<'_, T> {
    fn name(&self) -> &'static str {
        "copy from page-locked memory"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("{} is supported only on a GPU", self.name())
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, _: &Layout) -> Result<()> {
        let slice = storage.as_cuda_slice_mut::<T>()?;
        let mut beginning = slice.slice_mut(..self.from.len());
        // The previous batch may still read this memory. cudarc makes the copy stream wait until that batch no longer
        // uses it.
        self.copies.memcpy_htod(self.from, &mut beginning).map_err(driver)
    }
}

fn driver(error: DriverError) -> candle_core::Error {
    candle_core::Error::wrap(error)
}
