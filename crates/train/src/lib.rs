//! Training of encoders on unlabeled dialogues.
//!
//! A [`recipe`] names the settings of a run, [`objectives`] holds the losses, and [`trainer`] takes the steps. The function
//! [`run()`] does a whole run: it reads the dialogues, trains, evaluates, and saves the model. It reports to a
//! [`RunObserver`].
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

pub mod data;
pub mod device;
pub mod gradients;
pub mod model;
pub mod neighbors;
pub mod objectives;
pub mod ops;
pub mod optimizer;
pub mod order;
pub mod recipe;
pub mod run;
mod scatter;
pub mod schedule;
pub mod spool;
pub mod surroundings;
pub mod teacher;
pub mod trainer;
pub mod unique;

pub use run::{Outcome, RunObserver, RunOptions, run, sweep};
