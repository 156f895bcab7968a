//! Schemas of the collections, and functions that create collections, load them, and check their columns.

use std::collections::HashMap;

use milvus::v2::{
    CollectionSchema, DataType, FieldSchema, Function, FunctionType, IndexParam, IndexType, MetricType,
    request::{
        alias::{AlterAliasRequest, CreateAliasRequest, DescribeAliasRequest},
        collection::{
            CreateCollectionRequest, DescribeCollectionRequest, HasCollectionRequest, LoadCollectionRequest,
        },
        index::CreateIndexRequest,
    },
    response::collection::DescribeCollectionResponse,
};

use super::{
    connection::Connection,
    generations::{Manifest, PROPERTY},
    names,
    rows::MOST_FACTS,
    speakers::LONGEST_NAME,
    target::Target,
};
use turnwise_core::{
    error::{Error, Result},
    ids::MAX_ID_BYTES,
};
use turnwise_index::vectors::Kind;

/// BM25 parameters. They are the same as in a local index, so that scores are comparable.
const BM25: &str = r#"{"bm25_k1": 1.2, "bm25_b": 0.75}"#;
/// BM25 parameters for titles, whose length has no influence.
const TITLE_BM25: &str = r#"{"bm25_k1": 1.2, "bm25_b": 0.0}"#;

impl Connection {
    /// Connects to the server, and loads the generation to which the name in `target` refers. Returns an error if the
    /// name does not exist.
    pub(super) fn open_loaded(target: &Target) -> Result<(Self, Manifest)> {
        let connection = Connection::open(target)?;
        let Some(manifest) = connection.manifest()? else { return Err(missing(target)) };
        connection.load(&manifest)?;
        Ok((connection, manifest))
    }

    /// Returns the manifest of the generation to which the name refers. Returns `None` if the name does not exist.
    pub(super) fn manifest(&self) -> Result<Option<Manifest>> {
        self.aliased()?.map_or(Ok(None), |collection| self.manifest_of(&collection))
    }

    /// Reads the manifest of a generation from its collection of dialogues.
    pub(super) fn manifest_of(&self, collection: &str) -> Result<Option<Manifest>> {
        let described = self.describe(collection)?;
        match described.description().get_properties().get(PROPERTY) {
            Some(text) => Manifest::read(&self.target.to_string(), text).map(Some),
            None => Err(self.not_created_by_turnwise()),
        }
    }

    fn describe(&self, collection: &str) -> Result<DescribeCollectionResponse> {
        let request = DescribeCollectionRequest::builder().collection_name(collection).build();
        self.call("reading the schema of a collection", async {
            self.client.describe_collection(request?).await
        })
    }

    /// Returns the name of the collection to which the alias refers. Returns `None` if the alias does not exist, and an
    /// error if the name of the alias belongs to something else, such as a collection.
    fn aliased(&self) -> Result<Option<String>> {
        let name = self.target.name.as_str();
        if !self.exists(name)? {
            return Ok(None);
        }
        let request = DescribeAliasRequest::builder().alias(name).build();
        match self.call("reading an alias", async { self.client.describe_alias(request?).await }) {
            Ok(described) => Ok(Some(described.collection_name().to_owned())),
            // The name exists, but it is not an alias.
            Err(Error::Unavailable { .. }) => Err(self.not_created_by_turnwise()),
            Err(e) => Err(e),
        }
    }

    fn not_created_by_turnwise(&self) -> Error {
        Error::input(format!("{} exists, but turnwise did not create it", self.target))
            .with_hint("choose another name for the dialogues")
    }

    pub(super) fn exists(&self, collection: &str) -> Result<bool> {
        let request = HasCollectionRequest::builder().collection_name(collection).build();
        let answer =
            self.call("looking for a collection", async { self.client.has_collection(request?).await })?;
        Ok(answer.exists())
    }

    /// Creates the collections of a generation and loads them. Searches do not use them until [`Connection::switch`] is
    /// called.
    pub(super) fn create(&self, manifest: &Manifest) -> Result<()> {
        let text = manifest.as_text()?;
        for (collection, schema) in schemas(&self.target.name, manifest) {
            let has = |name: &str| schema.get_fields().iter().any(|field| field.get_name() == name);
            let mut indexes = match has("nothing") {
                true => vec![
                    plain_index("nothing", IndexType::Flat, MetricType::L2),
                    inverted_index(if has("key") { "key" } else { "folded" }),
                ],
                false => self.indexes(manifest.recipe.as_ref().map(|recipe| recipe.dim)),
            };
            if has(TITLE_TERMS) {
                indexes.push(sparse_index(TITLE_TERMS, TITLE_BM25));
            }
            // Drop the collection if an interrupted creation has left one. It was never in use.
            self.drop_if_there(&collection)?;
            let request = CreateCollectionRequest::builder()
                .collection_name(collection.as_str())
                .description(text.as_str())
                .schema(schema)
                .num_shards(self.target.shards)
                .consistency_level(self.target.consistency)
                .properties(HashMap::from([(PROPERTY.to_owned(), text.clone())]))
                .index_params(indexes)
                .build();
            self.call("creating a collection", async { self.client.create_collection(request?).await })?;
        }
        for kind in Kind::ALL {
            let collection = manifest.rows(&self.target.name, kind);
            let times = manifest.times.then_some([FIRST_TIME, LAST_TIME]);
            for column in times.iter().flatten().chain(&["facts"]) {
                self.index_column(&collection, column);
            }
        }
        self.load(manifest)
    }

    /// Creates an index on a column for faster filters. Ignores errors, because some servers do not support an index on
    /// lists, and filters also work without it.
    fn index_column(&self, collection: &str, column: &str) {
        let request = CreateIndexRequest::builder()
            .collection_name(collection)
            .index_param(inverted_index(column))
            .build();
        let _ = self.call("creating an index", async { self.client.create_index(request?).await });
    }

    /// Switches the alias to a generation, atomically and for all clients.
    pub(super) fn switch(&self, manifest: &Manifest) -> Result<()> {
        let name = self.target.name.as_str();
        let collection = manifest.rows(name, Kind::Dialogues);
        match self.aliased()? {
            None => {
                let request =
                    CreateAliasRequest::builder().collection_name(collection.as_str()).alias(name).build();
                self.call("creating an alias", async { self.client.create_alias(request?).await })
            }
            Some(_) => {
                let request =
                    AlterAliasRequest::builder().collection_name(collection.as_str()).alias(name).build();
                self.call("switching an alias", async { self.client.alter_alias(request?).await })
            }
        }
    }

    /// Loads the collections of a generation into the memory of the server for searching, and checks their columns.
    /// This is necessary again after a restart of the server.
    pub(super) fn load(&self, manifest: &Manifest) -> Result<()> {
        for (collection, schema) in schemas(&self.target.name, manifest) {
            self.check(&collection, &schema)?;
            let request = LoadCollectionRequest::builder().collection_name(collection.as_str()).build();
            self.call("loading a collection", async { self.client.load_collection(request?).await })?;
        }
        Ok(())
    }

    /// Returns an error if a collection lacks a column that turnwise created, or if a column has a different type.
    /// Additional columns are allowed.
    fn check(&self, collection: &str, expected: &CollectionSchema) -> Result<()> {
        let described = self.describe(collection)?;
        let fields = described.description().get_schema().get_fields();
        for expected in expected.get_fields() {
            let (name, dim) = (expected.get_name(), expected.get_dimension());
            let what = match fields.iter().find(|field| field.get_name() == name) {
                None => format!("has no column `{name}`"),
                Some(field) if field.get_data_type() != expected.get_data_type() => {
                    format!("has a column `{name}` of a different type")
                }
                Some(field) if field.get_dimension() != dim => {
                    let found = field.get_dimension();
                    format!("has vectors with {found} dimensions in `{name}`, expected {dim}")
                }
                Some(_) => continue,
            };
            let target = &self.target;
            let message = format!("{target}: {collection} {what}: another program changed it");
            let hint =
                format!("`turnwise ingest --engine {target} --replace FILES` creates all collections again");
            return Err(Error::unavailable(message).with_hint(hint));
        }
        Ok(())
    }

    /// Returns the indexes of a collection of rows. `dim` is the number of dimensions of the vectors, if there are any.
    fn indexes(&self, dim: Option<usize>) -> Vec<IndexParam> {
        let mut indexes = vec![sparse_index(TERMS, BM25), inverted_index("key")];
        if dim.is_some() {
            let cosine = |kind| plain_index("vector", kind, MetricType::Cosine);
            indexes.push(match self.target.graph {
                IndexType::DiskAnn => cosine(IndexType::DiskAnn),
                // With `refine`, the best candidates are scored again with more precise vectors.
                IndexType::IvfRabitq => with(
                    cosine(IndexType::IvfRabitq),
                    r#"{"nlist": 1024, "refine": true, "refine_type": "FP16"}"#,
                ),
                _ => with(cosine(IndexType::Hnsw), r#"{"M": 24, "efConstruction": 200}"#),
            });
        }
        indexes
    }
}

/// Adds parameters to an index. They are one JSON text, because every server version accepts this form.
fn with(index: IndexParam, params: &str) -> IndexParam {
    index.extra_params(HashMap::from([("params".to_owned(), params.to_owned())]))
}

fn sparse_index(field: &str, params: &str) -> IndexParam {
    with(plain_index(field, IndexType::SparseInvertedIndex, MetricType::Bm25), params)
}

fn plain_index(field: &str, kind: IndexType, metric: MetricType) -> IndexParam {
    IndexParam::new().field_name(field).index_type(kind).metric_type(metric)
}

fn inverted_index(field: &str) -> IndexParam {
    IndexParam::new().field_name(field).index_type(IndexType::Inverted)
}

fn text_field(name: &str, longest: usize) -> FieldSchema {
    FieldSchema::new().name(name).data_type(DataType::VarChar).max_length(longest as u32)
}

fn field(name: &str, kind: DataType) -> FieldSchema {
    FieldSchema::new().name(name).data_type(kind)
}

/// Returns the schema of the partition key, a column that holds the name of the corpus.
fn corpus() -> FieldSchema {
    text_field("corpus", names::LONGEST_TEXT).partition_key(true)
}

/// Returns the names of the collections of a generation with their schemas. The collection of dialogues is the last one.
fn schemas(name: &str, manifest: &Manifest) -> Vec<(String, CollectionSchema)> {
    let [records, utterances, dialogues] = manifest.collections(name);
    let of = |kind| rows(manifest, kind);
    let mut schemas = vec![(records, self::records()), (utterances, of(Kind::Utterances))];
    if manifest.speakers {
        schemas.push((manifest.speakers(name), speakers()));
    }
    schemas.push((dialogues, of(Kind::Dialogues)));
    schemas
}

/// Column with the weighted terms of `words`.
pub(super) const TERMS: &str = "sparse";
/// Columns with the first and the last time of a turn or a dialogue, in microseconds since 1970. Without a time, the first
/// one is [`i64::MAX`] and the last one [`i64::MIN`].
pub(super) const FIRST_TIME: &str = "first_time";
pub(super) const LAST_TIME: &str = "last_time";
/// Column with the weighted terms of `title`.
pub(super) const TITLE_TERMS: &str = "title_sparse";

fn rows(manifest: &Manifest, kind: Kind) -> CollectionSchema {
    let facts = field("facts", DataType::Array)
        .element_type(DataType::VarChar)
        .max_capacity(MOST_FACTS as u32)
        .max_length(names::LONGEST_FACT as u32);
    let analyzer = match &manifest.words {
        Some(analyzer) => serde_json::json!({ "type": analyzer }),
        // Terms of the turnwise analyzer are encoded without separators, so any tokenizer keeps them unchanged. Use the
        // standard tokenizer, because every server has it.
        None => serde_json::json!({ "tokenizer": "standard" }),
    };
    let analyzed = |name: &str| {
        text_field(name, names::LONGEST_TEXT).enable_analyzer(true).analyzer_params(analyzer.clone())
    };
    let bm25 = |name: &str, from: &str, to: &str| {
        Function::new().name(name).function_type(FunctionType::Bm25).input_fields([from]).output_fields([to])
    };
    let mut schema = CollectionSchema::new()
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
        .add_field(analyzed("words"))
        .add_field(field(TERMS, DataType::SparseFloatVector))
        .add_function(bm25("bm25", "words", TERMS));
    if manifest.times {
        schema =
            schema.add_field(field(FIRST_TIME, DataType::Int64)).add_field(field(LAST_TIME, DataType::Int64));
    }
    if kind == Kind::Dialogues && manifest.titles {
        schema = schema
            .add_field(analyzed("title"))
            .add_field(field(TITLE_TERMS, DataType::SparseFloatVector))
            .add_function(bm25("title_bm25", "title", TITLE_TERMS));
    }
    match &manifest.recipe {
        Some(recipe) => schema
            .add_field(field("vector", DataType::FloatVector).dimension(recipe.dim as u32))
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
        .add_field(no_vector())
}

/// Returns the schema of the names of speakers. The name is the id. `folded` is the name in lower case.
fn speakers() -> CollectionSchema {
    CollectionSchema::new()
        .add_field(text_field("id", LONGEST_NAME).primary_key(true))
        .add_field(text_field("folded", LONGEST_NAME))
        .add_field(no_vector())
}

/// Returns the column of a collection without vectors. Milvus requires a vector column in every collection.
fn no_vector() -> FieldSchema {
    field("nothing", DataType::FloatVector).dimension(2)
}

pub(super) fn missing(target: &Target) -> Error {
    Error::input(format!("there are no dialogues at {target}"))
        .with_hint(format!("`turnwise ingest --engine {target} FILES` adds some"))
}
