//! Checks that sentence-transformers can open a model saved by turnwise and computes the same vectors with it.

use turnwise_encoder::folder::{ModelFolder, SavedModel, save};

use crate::{
    models::{Models, agree_where_there_are_tokens},
    support::{Peers, Work},
};

#[test]
fn a_saved_model_opens_in_sentence_transformers_with_the_same_vectors() {
    let test = "a_saved_model_opens_in_sentence_transformers_with_the_same_vectors";
    let (Some(peers), Some(models)) = (Peers::find(test), Models::find(test)) else { return };
    // One model of each architecture, and models with dense layers, poolings, prompts and a maximum length.
    let chosen = [
        "bert-dense",
        "bert-two-dense",
        "bert-cls-and-mean",
        "bert-short",
        "bert-default-prompt",
        "bert-prompts-left-out",
        "roberta",
        "xlm-roberta",
        "distilbert",
        "mpnet",
    ];
    for name in chosen {
        assert!(models.names.iter().any(|known| known == name), "{name} was not made");
        let model = ModelFolder::open(&models.folder(name)).unwrap();
        let (network, tokenizer) = (model.network().unwrap(), model.tokenizer().unwrap());
        let work = Work::new();
        let target = work.path("saved");
        let saved = SavedModel {
            network: &network,
            architecture: model.config().architecture,
            pipeline: model.pipeline(),
            tokenizer: &tokenizer,
            base: None,
            pooler: None,
        };
        save(&target, &saved).unwrap();
        let theirs = peers.vectors(&work, &target, &models.file);
        // Python computes both vectors, so equal weights result in equal numbers.
        theirs.agree(&models.vectors(name, None), 1e-6, &models.texts, &format!("{name}, saved, in Python"));
        let ours = work.embed(&target, &models.file, &["--precision", "f32"]);
        agree_where_there_are_tokens(&ours, &theirs, &models.texts, &format!("{name}, saved, here"));
    }
}
