//! Training of encoders on unlabeled dialogues.
//!
//! A [`recipe`] contains the settings of a run, [`objectives`] the losses, and [`trainer`] the training loop. The
//! function [`run()`] performs a whole run: it reads the dialogues, trains, evaluates, and saves the model. A
//! [`RunObserver`] receives the progress and the messages of the run.
//!
//! ```no_run
//! use turnwise_train::{RunObserver, RunOptions, recipe::{ObjectiveName, Recipe}};
//!
//! struct Printer;
//!
//! impl RunObserver for Printer {
//!     fn note(&self, message: &str) {
//!         println!("{message}");
//!     }
//! }
//!
//! # fn main() -> turnwise_core::Result<()> {
//! let (model, corpus) = ("models/all-MiniLM-L6-v2".to_owned(), vec!["chats/".into()]);
//! let recipe = Recipe::new(ObjectiveName::Responses, model, corpus);
//! let (outcome, _) = turnwise_train::run(recipe, &RunOptions::new("runs/chats"), &Printer)?;
//! println!("the model of step {} is in runs/chats/model", outcome.kept);
//! # Ok(())
//! # }
//! ```

mod context_cca;
pub mod data;
mod device;
mod gradients;
pub mod model;
mod neighbors;
pub mod objectives;
mod ops;
pub mod optimizer;
pub mod order;
pub mod recipe;
pub mod run;
mod scatter;
mod spool;
mod teacher;
pub mod trainer;
mod unique;

pub use run::{Outcome, RunObserver, RunOptions, run, sweep};
