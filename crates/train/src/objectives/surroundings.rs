//! Surroundings: a linear layer in closed form, see [`crate::surroundings`].

use super::definition::{Definition, Role, Sample, Training};
use crate::run::evaluations::Selection;

/// Definition of `surroundings`.
pub static SURROUNDINGS: Definition = Definition {
    name: "surroundings",
    about: "utterances: those with similar turns before and after them get similar vectors; a linear layer in closed form, no \
            training steps",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Main,
    min_turns: 2,
    training: Training::ClosedForm,
};
