//! Inference engine: looks up embeddings, and runs a network with packed weights on the CPU.

use std::{path::Path, sync::Mutex};

use turnwise_core::{Error, Result};

use crate::{
    Batch, Network, Precision,
    attention::DistanceBias,
    embedder::Embedder,
    layer::{PackedLayer, Positions, Rows, Workspace},
    network::{Norm, RelativeBias},
    norm::{AddNorm, PaddedNorm, padded_norm},
    pack::{GRAIN, f16_error},
    precision,
    rotary::{Rotation, RotationTable},
    simd::{Simd, SimdChoice, SimdLevel, at_level},
    speed,
    spread::Team,
};

/// CPU inference engine for a network.
///
/// By default a batch is computed on the calling thread. To use more threads, call the engine from several threads, or
/// set [`Batch::threads`] to share one batch among rayon's threads. The result of a sequence does not depend on the
/// other sequences in its batch, not even in the last bit.
pub struct CpuEngine {
    precision: Precision,
    level: SimdLevel,
    /// SIMD levels that are faster than `level` but failed the self-test.
    failed: Vec<SimdLevel>,
    hidden: usize,
    embedder: Embedder,
    /// Width of a row of hidden states with its padding.
    stride: usize,
    norm: Option<PaddedNorm>,
    biases: Option<DistanceBias>,
    rotations: Option<Rotations>,
    layers: Vec<PackedLayer>,
    final_norm: Option<PaddedNorm>,
    /// Number of multiplications per token in the largest matrix product.
    largest_step: usize,
    /// Pool of workspaces that are not in use.
    workspaces: Mutex<Vec<Workspace>>,
}

/// Rotary position embedding of a network.
struct Rotations {
    /// Rotations in layers without a window.
    all: RotationTable,
    /// Rotations in layers with a window; `None` if no layer has one.
    window: Option<RotationTable>,
    /// For each layer, true if it has a window.
    has_window: Vec<bool>,
}

impl Rotations {
    fn new(network: &Network) -> Option<Self> {
        let (shape, rotary) = (&network.shape, network.shape.rotary?);
        let has_window: Vec<bool> = network.layers.iter().map(|layer| layer.window.is_some()).collect();
        let window = has_window.contains(&true);
        Some(Rotations {
            all: RotationTable::new(shape, rotary, false),
            window: window.then(|| RotationTable::new(shape, rotary, true)),
            has_window,
        })
    }

    fn of_layer(&self, layer: usize) -> &RotationTable {
        self.window.as_ref().filter(|_| self.has_window[layer]).unwrap_or(&self.all)
    }
}

impl CpuEngine {
    /// Creates an engine: packs the weights of a network for a precision and a SIMD level.
    ///
    /// Returns an error for f16, for an unknown or unsupported SIMD level, and for a network with inconsistent sizes.
    pub fn new(network: &Network, precision: Precision, simd: SimdChoice) -> Result<Self> {
        if precision == Precision::F16 {
            return Err(f16_error());
        }
        let (level, failed) = match simd.requested()? {
            Some(level) => (level, Vec::new()),
            None => precision::best_verified(),
        };
        let mut engine = CpuEngine::at(network, precision, level)?;
        engine.failed = failed;
        Ok(engine)
    }

    /// Creates an engine for a SIMD level. Panics if the processor does not support the level. Returns an error for
    /// f16, or if the sizes in the network are inconsistent.
    pub(super) fn at(network: &Network, precision: Precision, level: SimdLevel) -> Result<Self> {
        fn pack<S: Simd>(network: &Network, precision: Precision) -> Result<Vec<PackedLayer>> {
            network
                .layers
                .iter()
                .map(|layer| PackedLayer::new::<S>(layer, &network.shape, precision))
                .collect()
        }
        assert!(level.available(), "the processor does not have this SIMD level");
        check(network)?;
        Ok(CpuEngine {
            precision,
            level,
            failed: Vec::new(),
            hidden: network.shape.hidden,
            embedder: Embedder::new(network),
            stride: network.shape.hidden.next_multiple_of(GRAIN),
            norm: network.embeddings.norm.as_ref().map(|norm| padded_norm(norm, &network.shape)),
            biases: DistanceBias::of(network),
            rotations: Rotations::new(network),
            layers: at_level!(level, pack::<_>(network, precision))?,
            final_norm: network.final_norm.as_ref().map(|norm| padded_norm(norm, &network.shape)),
            largest_step: network.shape.hidden * network.shape.intermediate,
            workspaces: Mutex::default(),
        })
    }

    /// Returns the fastest of the precisions in `among` on this processor. A less accurate precision is returned only if it is
    /// at least a tenth faster than the more accurate ones. The precisions are measured once, which takes about 20
    /// milliseconds. Their times are kept in the file `cache`.
    ///
    /// Returns an error if the requested SIMD level is unknown or the processor does not support it.
    pub fn fastest(among: &[Precision], simd: SimdChoice, cache: Option<&Path>) -> Result<Precision> {
        let level = simd.requested()?.unwrap_or_else(|| precision::best_verified().0);
        speed::fastest(level, among, cache)
    }

    /// Returns the SIMD level that the engine runs on.
    pub fn level(&self) -> SimdLevel {
        self.level
    }

    fn workspaces(&self) -> std::sync::MutexGuard<'_, Vec<Workspace>> {
        // A poisoned lock is harmless: a workspace is removed from the pool while it is in use.
        self.workspaces.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Computes the embeddings of a batch and runs the network up to the last layer in `layers`. Passes the hidden states
/// after each layer in `layers` to `take`: those of all tokens, except that `rows` says which tokens of the last of
/// these layers are needed.
///
/// # Safety
///
/// The processor must have the features of `S`, and the engine must be packed for `S`.
unsafe fn run<S: Simd>(
    engine: &CpuEngine,
    batch: &Batch,
    (layers, rows): (&[usize], Rows),
    take: &mut dyn FnMut(usize, &[f32]),
    workspace: &mut Workspace,
    team: &Team,
) {
    let (tokens, stride) = (batch.tokens(), engine.stride);
    workspace.x.reserve::<f32>(tokens * stride);
    let mut start = 0;
    for sequence in batch.sequences {
        let embedded = &mut workspace.x.of_mut()[start * stride..(start + sequence.len()) * stride];
        engine.embedder.embed(sequence, embedded, stride);
        start += sequence.len();
    }
    let x = &mut workspace.x.of_mut()[..tokens * stride];
    if let Some(norm) = &engine.norm {
        // SAFETY: the caller guarantees the processor features.
        unsafe { AddNorm { x, y: None, to: None, stride, norm }.run::<S::Base>() };
    }
    let positions: Vec<u32> = match engine.rotations {
        Some(_) => batch.sequences.iter().flat_map(|s| engine.embedder.positions(s)).collect(),
        None => Vec::new(),
    };
    let mut wanted = layers.iter().copied().peekable();
    for done in 0..=engine.layers.len() {
        let rows = if layers.last() == Some(&done) { rows } else { Rows::All };
        if done > 0 {
            let (layer, lengths) = (&engine.layers[done - 1], batch.sequences.iter().map(|s| s.len()));
            let table = engine.rotations.as_ref().map(|rotations| rotations.of_layer(done - 1));
            let rotation = table.map(|table| Rotation { table, positions: &positions });
            let positions = Positions { biases: engine.biases.as_ref(), rotation: rotation.as_ref() };
            // SAFETY: the caller guarantees the processor features.
            unsafe { layer.run::<S>(workspace, lengths, (tokens, rows), positions, team) };
        }
        if wanted.next_if_eq(&done).is_some() {
            let count = match rows {
                Rows::All => tokens,
                Rows::First => batch.sequences.len(),
            };
            if let Some(norm) = engine.final_norm.as_ref().filter(|_| done == engine.layers.len()) {
                let x = &mut workspace.x.of_mut()[..count * stride];
                // SAFETY: the caller guarantees the processor features.
                unsafe { AddNorm { x, y: None, to: None, stride, norm }.run::<S::Base>() };
            }
            hand_out(engine, workspace, count, &mut |states| take(done, states));
        }
        if wanted.peek().is_none() {
            break;
        }
    }
}

/// Passes the first `count` rows of hidden states to `take`, without the padding of the rows.
fn hand_out(engine: &CpuEngine, workspace: &Workspace, count: usize, take: &mut dyn FnMut(&[f32])) {
    let (stride, hidden) = (engine.stride, engine.hidden);
    let x = &workspace.x.of::<f32>()[..count * stride];
    if stride == hidden {
        take(x);
    } else {
        let narrow: Vec<f32> = x.chunks_exact(stride).flat_map(|row| &row[..hidden]).copied().collect();
        take(&narrow);
    }
}

/// Returns an error if the sizes of the weights are inconsistent. The kernels rely on this check.
fn check(network: &Network) -> Result<()> {
    let shape = &network.shape;
    let (h, e) = (shape.hidden, &network.embeddings);
    let (queries, keys) = (shape.heads * shape.head_size, shape.key_heads * shape.head_size);
    let mut fits = h > 0 && queries > 0 && keys > 0 && shape.intermediate > 0;
    fits &= shape.key_heads > 0 && shape.heads.is_multiple_of(shape.key_heads);
    fits &= e.tables().all(|t| t.rows > 0 && t.data.len() == t.rows * h);
    fits &= network.relative_bias.as_ref().is_none_or(|bias| {
        bias.heads == shape.heads && bias.data.len() == RelativeBias::BUCKETS * bias.heads
    });
    // A network with layers has a table of positions, a rotary position embedding, or a linear bias.
    let kinds = [e.positions.is_some(), shape.rotary.is_some(), shape.linear_bias.is_some()];
    fits &= kinds.into_iter().filter(|has| *has).count() == 1 || network.layers.is_empty();
    fits &= shape.rotary.is_none() || shape.head_size.is_multiple_of(2);
    let mut norms: Vec<(&Norm, usize)> =
        e.norm.iter().chain(&network.final_norm).map(|norm| (norm, h)).collect();
    for layer in &network.layers {
        let of_heads = layer.head_norms.iter().flatten();
        norms.extend(of_heads.map(|norm| (norm, shape.head_size)));
        norms.extend(layer.norms_of_states().map(|norm| (norm, h)));
        let linears = [
            (&layer.query, h, queries),
            (&layer.key, h, keys),
            (&layer.value, h, keys),
            (&layer.attention_output, queries, h),
            (&layer.intermediate, h, shape.intermediate),
            (&layer.output, shape.intermediate, h),
        ];
        let gate = layer.gate.iter().map(|gate| (gate, h, shape.intermediate));
        for (linear, inputs, outputs) in linears.into_iter().chain(gate) {
            fits &= linear.inputs == inputs
                && linear.outputs == outputs
                && linear.weight.len() == inputs * outputs
                && linear.bias.len() == outputs;
        }
    }
    fits &= norms.iter().all(|(norm, width)| norm.weight.len() == *width && norm.bias.len() == *width);
    if fits { Ok(()) } else { Err(Error::data("the sizes of the network's weights are inconsistent")) }
}

impl CpuEngine {
    /// Runs a batch and calls `take(layer, states)` for each of the `layers`, which must be in ascending order.
    ///
    /// Layer 0 is the output of the embeddings. `states` holds one row of hidden states per token; the sequences are
    /// concatenated. Layers above the last requested one are not computed.
    ///
    /// Returns an error if a sequence is empty, too long, or has ids that are not in the embedding tables. Also returns
    /// an error if a layer does not exist, or if the layers are not in strictly ascending order.
    pub fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.run_rows(batch, layers, Rows::All, take)
    }

    /// Runs a batch and passes the hidden states of the first token of each sequence to `take`, one row per sequence.
    /// `layer` is the layer that computes these states, at least 1.
    ///
    /// The results are those of [`CpuEngine::run`], but the layer is computed only for these tokens. Returns the same
    /// errors.
    pub fn first_tokens(&self, batch: &Batch, layer: usize, take: &mut dyn FnMut(&[f32])) -> Result<()> {
        if layer == 0 {
            return Err(Error::Internal("the embeddings are computed for all tokens".to_owned()));
        }
        self.run_rows(batch, &[layer], Rows::First, &mut |_, states| take(states))
    }

    fn run_rows(
        &self,
        batch: &Batch,
        layers: &[usize],
        rows: Rows,
        take: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<()> {
        for sequence in batch.sequences {
            self.embedder.check(sequence)?;
        }
        let n = self.layers.len();
        if let Some(beyond) = layers.iter().find(|layer| **layer > n) {
            return Err(Error::input(format!("layer {beyond} does not exist: the model has {n} layers")));
        }
        if !layers.is_sorted_by(|a, b| a < b) {
            return Err(Error::Internal("layers must be requested in ascending order".to_owned()));
        }
        if layers.is_empty() || batch.sequences.is_empty() {
            return Ok(());
        }
        let mut workspace = self.workspaces().pop().unwrap_or_default();
        let threads = Team::useful_threads(batch.threads, batch.tokens(), self.largest_step);
        // SAFETY: `at` has checked that the processor has the level's features.
        Team::with(threads, |team| unsafe {
            at_level!(self.level, run::<_>(self, batch, (layers, rows), take, &mut workspace, team))
        });
        self.workspaces().push(workspace);
        Ok(())
    }

    /// Returns the width of a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Returns the number of layers, not counting the embeddings.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns the recommended number of tokens per batch for high throughput.
    pub fn best_batch(&self) -> usize {
        // The hidden states of this number of tokens stay in the core's cache while the weights stream through it.
        256
    }

    /// Describes the precision and the SIMD level for users, for example `f32 on cpu (avx2)`.
    pub fn describe(&self) -> String {
        let failed: String = self
            .failed
            .iter()
            .map(|level| format!("; {level} is disabled: its results are wrong on this processor"))
            .collect();
        format!("{} on cpu ({}{failed})", self.precision, self.level)
    }
}
