//! Collections: making them, opening them, and whether they are what they should be.

use std::collections::HashMap;

use milvus::v2::{
    CollectionSchema, DataType, FieldSchema, Function, FunctionType, IndexParam, IndexType, MetricType,
    request::{
        alias::{AlterAliasRequest, CreateAliasRequest, DescribeAliasRequest, DropAliasRequest},
        collection::{
            CreateCollectionRequest, DescribeCollectionRequest, DropCollectionRequest, HasCollectionRequest,
            LoadCollectionRequest,
        },
    },
};

use super::{
    connection::Connection,
    manifest::{Manifest, PROPERTY},
    names,
    rows::MOST_FACTS,
    target::Graph,
};
use crate::{
    error::{Error, Result},
    ids::MAX_ID_BYTES,
    index::vectors::Kind,
};

/// As an index on this machine has them: scores then are alike, too.
const BM25: &str = r#"{"bm25_k1": 1.2, "bm25_b": 0.75}"#;

impl Connection {
    /// What a name stands for; `None` if there is nothing of that name.
    pub(super) fn manifest(&self) -> Result<Option<Manifest>> {
        let Some(collection) = self.aliased()? else { return Ok(None) };
        let place = self.target.to_string();
        let request = DescribeCollectionRequest::builder().collection_name(collection.as_str()).build();
        let described =
            self.ask("looking at a collection", async { self.client.describe_collection(request?).await })?;
        let properties = described.description().get_properties();
        match properties.get(PROPERTY) {
            Some(text) => Manifest::read(&place, text).map(Some),
            None => Err(not_ours(&place)),
        }
    }

    /// The collection that the name stands for.
    fn aliased(&self) -> Result<Option<String>> {
        let name = self.target.name.as_str();
        if self.exists(name)? {
            let request = DescribeAliasRequest::builder().alias(name).build();
            let described =
                self.ask("looking at a name", async { self.client.describe_alias(request?).await });
            return match described {
                Ok(described) => Ok(Some(described.collection_name().to_owned())),
                // It is there, and is no alias of ours.
                Err(Error::Unavailable { .. }) => Err(not_ours(&self.target.to_string())),
                Err(e) => Err(e),
            };
        }
        Ok(None)
    }

    fn exists(&self, collection: &str) -> Result<bool> {
        let request = HasCollectionRequest::builder().collection_name(collection).build();
        let answer =
            self.ask("looking for a collection", async { self.client.has_collection(request?).await })?;
        Ok(answer.exists())
    }

    /// Makes the collections of a generation. Nobody sees them before [`Connection::switch`].
    pub(super) fn create(&self, manifest: &Manifest) -> Result<()> {
        let name = &self.target.name;
        let dim = manifest.recipe.as_ref().map(|recipe| recipe.dim);
        let everything = [
            (
                manifest.records(name),
                records(),
                vec![plain_index("nothing", IndexType::Flat, MetricType::L2), looked_up("key")],
            ),
            (manifest.rows(name, Kind::Utterances), rows(dim), self.indexes(dim)),
            (manifest.rows(name, Kind::Dialogues), rows(dim), self.indexes(dim)),
        ];
        let text = serde_json::to_string(manifest).map_err(|e| Error::Internal(e.to_string()))?;
        for (collection, schema, indexes) in everything {
            // What a making left that was cut short: no name ever stood for it.
            if self.exists(&collection)? {
                self.drop_collection(&collection)?;
            }
            let request = CreateCollectionRequest::builder()
                .collection_name(collection.as_str())
                .description(text.as_str())
                .schema(schema)
                .num_shards(self.target.shards)
                .consistency_level(self.consistency())
                .properties(HashMap::from([(PROPERTY.to_owned(), text.clone())]))
                .index_params(indexes)
                .build();
            self.ask("making a collection", async { self.client.create_collection(request?).await })?;
        }
        self.load(manifest)
    }

    /// Takes the name away, and then what it stood for.
    pub(super) fn remove(&self, manifest: &Manifest) -> Result<()> {
        let name = self.target.name.as_str();
        let request = DropAliasRequest::builder().alias(name).build();
        self.ask("taking a name away", async { self.client.drop_alias(request?).await })?;
        self.drop_collection(&manifest.records(name))?;
        Kind::ALL.into_iter().try_for_each(|kind| self.drop_collection(&manifest.rows(name, kind)))
    }

    fn drop_collection(&self, collection: &str) -> Result<()> {
        let request = DropCollectionRequest::builder().collection_name(collection).build();
        self.ask("removing a collection", async { self.client.drop_collection(request?).await })
    }

    /// Lets the name stand for a generation, for everybody and at once.
    pub(super) fn switch(&self, manifest: &Manifest) -> Result<()> {
        let name = self.target.name.as_str();
        let collection = manifest.rows(name, Kind::Dialogues);
        match self.aliased()? {
            None => {
                let request =
                    CreateAliasRequest::builder().collection_name(collection.as_str()).alias(name).build();
                self.ask("giving a name", async { self.client.create_alias(request?).await })
            }
            Some(_) => {
                let request =
                    AlterAliasRequest::builder().collection_name(collection.as_str()).alias(name).build();
                self.ask("switching a name", async { self.client.alter_alias(request?).await })
            }
        }
    }

    /// Brings the collections of a generation to where they are searched. Milvus forgets it when it starts anew.
    pub(super) fn load(&self, manifest: &Manifest) -> Result<()> {
        let name = &self.target.name;
        let all = [
            manifest.records(name),
            manifest.rows(name, Kind::Utterances),
            manifest.rows(name, Kind::Dialogues),
        ];
        for collection in all {
            let request = LoadCollectionRequest::builder().collection_name(collection.as_str()).build();
            self.ask("loading a collection", async { self.client.load_collection(request?).await })?;
        }
        Ok(())
    }

    fn indexes(&self, dim: Option<usize>) -> Vec<IndexParam> {
        // As one JSON text, the way that every server reads.
        let with = |index: IndexParam, params: &str| {
            index.extra_params(HashMap::from([("params".to_owned(), params.to_owned())]))
        };
        let mut indexes =
            vec![with(plain_index("sparse", IndexType::SparseInvertedIndex, MetricType::Bm25), BM25)];
        indexes.push(looked_up("key"));
        if dim.is_some() {
            let cosine = |kind| plain_index("vector", kind, MetricType::Cosine);
            indexes.push(match self.target.graph {
                Graph::Hnsw => with(cosine(IndexType::Hnsw), r#"{"M": 24, "efConstruction": 200}"#),
                Graph::DiskAnn => cosine(IndexType::DiskAnn),
                Graph::IvfRabitq => with(
                    cosine(IndexType::IvfRabitq),
                    r#"{"nlist": 1024, "refine": true, "refine_type": "FP16"}"#,
                ),
            });
        }
        indexes
    }
}

fn plain_index(field: &str, kind: IndexType, metric: MetricType) -> IndexParam {
    IndexParam::new().field_name(field).index_type(kind).metric_type(metric)
}

/// A column in which rows are found by their values.
fn looked_up(field: &str) -> IndexParam {
    IndexParam::new().field_name(field).index_type(IndexType::Inverted)
}

fn text_field(name: &str, longest: usize) -> FieldSchema {
    FieldSchema::new().name(name).data_type(DataType::VarChar).max_length(longest as u32)
}

fn field(name: &str, kind: DataType) -> FieldSchema {
    FieldSchema::new().name(name).data_type(kind)
}

/// Rows of dialogues of one corpus lie together.
fn corpus() -> FieldSchema {
    text_field("corpus", names::LONGEST_TEXT).partition_key(true)
}

fn rows(dim: Option<usize>) -> CollectionSchema {
    let facts = field("facts", DataType::Array)
        .element_type(DataType::VarChar)
        .max_capacity(MOST_FACTS as u32)
        .max_length(names::LONGEST_FACT as u32);
    // Terms have no sign that any tokenizer could take apart, and so the one that every server has does.
    let words = text_field("words", names::LONGEST_TEXT)
        .enable_analyzer(true)
        .analyzer_params(serde_json::json!({ "tokenizer": "standard" }));
    let bm25 = Function::new()
        .name("bm25")
        .function_type(FunctionType::Bm25)
        .input_fields(["words"])
        .output_fields(["sparse"]);
    let schema = CollectionSchema::new()
        .add_field(text_field("id", 128).primary_key(true))
        .add_field(text_field("key", 32))
        .add_field(field("version", DataType::Int64))
        .add_field(field("turn", DataType::Int64))
        .add_field(corpus())
        .add_field(text_field("dialogue", MAX_ID_BYTES))
        .add_field(facts)
        .add_field(field("bounds", DataType::Json))
        .add_field(field("folds", DataType::Json))
        .add_field(text_field("said", names::LONGEST_TEXT))
        .add_field(words)
        .add_field(field("sparse", DataType::SparseFloatVector))
        .add_function(bm25);
    match dim {
        Some(dim) => schema
            .add_field(field("vector", DataType::FloatVector).dimension(dim as u32))
            .add_field(field("directed", DataType::Bool)),
        None => schema,
    }
}

fn records() -> CollectionSchema {
    CollectionSchema::new()
        .add_field(text_field("id", 128).primary_key(true))
        .add_field(text_field("key", 32))
        .add_field(field("version", DataType::Int64))
        .add_field(field("piece", DataType::Int64))
        .add_field(field("pieces", DataType::Int64))
        .add_field(corpus())
        .add_field(text_field("json", names::LONGEST_TEXT))
        // Milvus has no collection without vectors.
        .add_field(field("nothing", DataType::FloatVector).dimension(2))
}

fn not_ours(place: &str) -> Error {
    Error::Input {
        message: format!("{place} is there, and turnwise did not make it"),
        hint: Some("take another name for the dialogues".to_owned()),
    }
}

/// That there is nothing of that name.
pub(super) fn missing(place: &str) -> Error {
    Error::Input {
        message: format!("there are no dialogues at {place}"),
        hint: Some(format!("`turnwise ingest --engine {place} FILES` brings some there")),
    }
}
