//! `turnwise model info`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
};

use serde::Serialize;

use crate::{
    cli::{
        Context,
        printer::{BOLD, DIM, bytes, grouped},
    },
    encoder::{
        folder::{ModelFolder, Step},
        hub::{Resolved, files},
    },
    error::Result,
};

#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    model: Resolved,
    architecture: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    intermediate: usize,
    vocabulary: usize,
    parameters: usize,
    max_tokens: usize,
    dim: usize,
    pooling: Vec<&'static str>,
    steps: Vec<String>,
    normalizes: bool,
    similarity: Option<String>,
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
    fingerprint: String,
    files: BTreeMap<String, u64>,
    notices: Vec<String>,
}

pub(super) fn run(spec: &str, context: &Context<'_>) -> Result<()> {
    let model = context.model(spec)?;
    let folder = ModelFolder::open(&model.path)?;
    let info = of(&folder, model)?;
    context.printer.result(&info, |out| print(&info, out))
}

fn of(folder: &ModelFolder, model: Resolved) -> Result<Info> {
    let pipeline = folder.pipeline();
    let config = folder.config();
    let sizes = files::walk(folder.path())?.into_iter().filter_map(|path| {
        let bytes = fs::metadata(folder.path().join(&path)).ok()?.len();
        Some((path, bytes))
    });
    Ok(Info {
        architecture: folder.architecture().name(),
        layers: config.layers,
        hidden: config.shape.hidden,
        heads: config.shape.heads,
        intermediate: config.shape.intermediate,
        vocabulary: folder.tokenizer()?.vocabulary(),
        parameters: folder.network()?.parameters() + pipeline.steps.iter().map(parameters).sum::<usize>(),
        max_tokens: folder.max_tokens(),
        dim: folder.dim(),
        pooling: pipeline.pooling.modes.iter().map(|mode| mode.name()).collect(),
        steps: pipeline.steps.iter().map(step).collect(),
        normalizes: pipeline.normalizes(),
        similarity: pipeline.similarity.clone(),
        // An empty prompt is none.
        prompts: pipeline.prompts.texts.clone().into_iter().filter(|(_, text)| !text.is_empty()).collect(),
        default_prompt: pipeline.prompts.default.clone(),
        fingerprint: folder.fingerprint()?.to_string(),
        files: sizes.collect(),
        notices: folder.notices().to_vec(),
        model,
    })
}

fn parameters(step: &Step) -> usize {
    match step {
        Step::Dense(dense) => dense.weight.len() + dense.bias.as_ref().map_or(0, Vec::len),
        Step::Normalize => 0,
    }
}

fn step(step: &Step) -> String {
    match step {
        Step::Dense(dense) => {
            format!("dense {} → {} ({:?})", dense.inputs, dense.outputs, dense.activation).to_lowercase()
        }
        Step::Normalize => "normalize".to_owned(),
    }
}

fn print(info: &Info, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |what: &str, is: String| writeln!(out, "{DIM}{what:<12}{DIM:#}  {is}");
    let revision = info.model.revision.as_ref().map(|r| format!(" (revision {r})")).unwrap_or_default();
    line("model", format!("{BOLD}{}{BOLD:#}{revision}", info.model.name))?;
    line("folder", info.model.path.display().to_string())?;
    line(
        "network",
        format!(
            "{}: {} layers of width {} with {} heads, {} between; {} parameters",
            info.architecture,
            info.layers,
            info.hidden,
            info.heads,
            info.intermediate,
            grouped(info.parameters as u64)
        ),
    )?;
    line("vocabulary", grouped(info.vocabulary as u64))?;
    line("max tokens", info.max_tokens.to_string())?;
    let path: Vec<String> =
        info.pooling.iter().map(|p| format!("{p} pooling")).chain(info.steps.clone()).collect();
    line("vectors", format!("{} numbers: {}", info.dim, path.join(", then ")))?;
    if let Some(similarity) = &info.similarity {
        line("compared by", similarity.clone())?;
    }
    for (name, text) in &info.prompts {
        let by_default = if info.default_prompt.as_ref() == Some(name) { " (default)" } else { "" };
        line("prompt", format!("{name}{by_default}: {text:?}"))?;
    }
    line("fingerprint", info.fingerprint.clone())?;
    for (path, size) in &info.files {
        line("file", format!("{path} ({})", bytes(*size)))?;
    }
    info.notices.iter().try_for_each(|notice| line("note", notice.clone()))
}
