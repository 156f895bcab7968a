"""What the tests ask sentence-transformers.

    reference.py vectors MODEL TEXTS.jsonl OUT.npy [PROMPT]   vectors of texts; with the named prompt, if one is given
    reference.py models TEXTS.jsonl FOLDER                    small models of every kind, each in a folder of its own,
                                                              with its vectors beside it as NAME.npy (and, of those
                                                              with prompts, NAME.PROMPT.npy); prints their names
    reference.py scorers PAIRS.jsonl FOLDER [SIZE]            small cross-encoders of every architecture, each in a folder of
                                                              its own; prints their names. With SIZE `small`: one of few
                                                              kilobytes
    reference.py scores MODEL PAIRS.jsonl                     the scores of pairs of texts by a cross-encoder, as JSON
    reference.py nearest VECTORS.npy N K                      for each row from N on the K of the first N with the greatest
                                                              products: [[row, product], …]
    reference.py versions                                     of the packages
"""

import importlib.metadata
import json
import pathlib
import sys

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

try:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding, Transformer
except ImportError:
    from sentence_transformers.models import Dense, Normalize, Pooling, StaticEmbedding, Transformer

# A vocabulary is learnt from these, so that the tests need no file of anybody's.
WIDTHS = {"hidden_size": 40, "num_attention_heads": 5, "intermediate_size": 72, "num_hidden_layers": 3}


def read(path):
    # Not splitlines: JSON leaves the separators U+2028 and U+2029 in texts as they are.
    lines = pathlib.Path(path).read_text("utf-8").split("\n")
    return [json.loads(line)["text"] for line in lines if line]


def encode(model, texts, prompt=None):
    vectors = model.encode(texts, batch_size=32, prompt_name=prompt, convert_to_numpy=True, show_progress_bar=False)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def word_pieces(texts):
    from tokenizers import BertWordPieceTokenizer

    learnt = BertWordPieceTokenizer(lowercase=True)
    learnt.train_from_iterator(texts, vocab_size=1500, min_frequency=2, show_progress=False)
    names = {"unk_token": "[UNK]", "sep_token": "[SEP]", "cls_token": "[CLS]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    return learnt._tokenizer, names


ROBERTA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
           "pad_token": "<pad>", "mask_token": "<mask>"}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_pairs(texts):
    from tokenizers import ByteLevelBPETokenizer, processors

    learnt = ByteLevelBPETokenizer()
    learnt.train_from_iterator(texts, vocab_size=1500, min_frequency=2, show_progress=False, special_tokens=SPECIAL)
    learnt._tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return learnt._tokenizer, ROBERTA


def unigrams(texts):
    from tokenizers import SentencePieceUnigramTokenizer, processors

    learnt = SentencePieceUnigramTokenizer()
    learnt.train_from_iterator(texts, vocab_size=1500, show_progress=False, special_tokens=SPECIAL, unk_token="<unk>")
    learnt._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return learnt._tokenizer, ROBERTA


# MPNet has the word pieces of BERT and the other special tokens of RoBERTa.
MPNET = {**ROBERTA, "unk_token": "[UNK]"}


def mpnet_pieces(texts):
    from tokenizers import BertWordPieceTokenizer, processors

    learnt = BertWordPieceTokenizer(unk_token="[UNK]", sep_token="</s>", cls_token="<s>", pad_token="<pad>",
                                    mask_token="<mask>", lowercase=True)
    learnt.train_from_iterator(texts, vocab_size=1500, min_frequency=2, show_progress=False,
                               special_tokens=["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])
    learnt._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return learnt._tokenizer, MPNET


def network(kind, tokenizer, seed):
    """A network of random weights, spread wider than at the start of a training, so that its vectors differ."""
    import transformers

    torch.manual_seed(seed)
    size = len(tokenizer)
    common = {"vocab_size": size, "pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.3}
    if kind == "distilbert":
        config = transformers.DistilBertConfig(dim=40, n_heads=5, hidden_dim=72, n_layers=3, max_position_embeddings=96, **common)
        return transformers.DistilBertModel(config)
    if kind == "bert":
        return transformers.BertModel(transformers.BertConfig(max_position_embeddings=96, **WIDTHS, **common))
    if kind == "modernbert":
        config = transformers.ModernBertConfig(
            max_position_embeddings=96, local_attention=12, global_attn_every_n_layers=2, cls_token_id=None,
            sep_token_id=None, bos_token_id=None, eos_token_id=None, **WIDTHS, **common)
        return transformers.ModernBertModel(config)
    if kind == "nomic":
        return transformers.NomicBertModel(transformers.NomicBertConfig(max_position_embeddings=96, **WIDTHS, **common))
    if kind == "gte-extended":
        # As angles by NTK scaling, which transformers does not have.
        parameters = {"rope_type": "linear", "rope_theta": 2 * 20_000.0, "factor": 2 ** (2 / 8)}
        return transformers.GteModel(
            transformers.GteConfig(max_position_embeddings=96, rope_parameters=parameters, **WIDTHS, **common))
    if kind == "gte":
        return transformers.GteModel(transformers.GteConfig(max_position_embeddings=96, **WIDTHS, **common))
    if kind == "qwen3":
        config = transformers.Qwen3Config(num_key_value_heads=1, head_dim=12, max_position_embeddings=96, **WIDTHS, **common)
        return transformers.Qwen3Model(config)
    if kind == "gemma3":
        config = transformers.Gemma3TextConfig(
            num_key_value_heads=1, head_dim=12, query_pre_attn_scalar=12, max_position_embeddings=96, sliding_window=12,
            use_bidirectional_attention=True, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            **WIDTHS, **common)
        return transformers.Gemma3TextModel(config)
    # Their positions begin behind the padding id.
    places = {"max_position_embeddings": 98, "type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2}
    if kind == "mpnet":
        places.pop("type_vocab_size")
        model = transformers.MPNetModel(transformers.MPNetConfig(**places, **WIDTHS, **common))
        torch.nn.init.normal_(model.encoder.relative_attention_bias.weight, std=1.5)
        return model
    if kind == "roberta":
        return transformers.RobertaModel(transformers.RobertaConfig(**places, **WIDTHS, **common))
    return transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**places, **WIDTHS, **common))


def transformer(kind, learnt, folder, seed, length=None):
    from transformers import PreTrainedTokenizerFast

    tokenizer, names = learnt
    tokenizer.no_padding()
    tokenizer.no_truncation()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=96, **names)
    bare = folder / f".{kind}-{seed}"
    with torch.no_grad():
        model = network(kind, fast, seed)
        for name, parameter in model.named_parameters():
            # Biases and norms begin as zeros and ones, under which a swapped or forgotten one would not be seen.
            if name.endswith("bias") or "norm" in name.lower():
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(bare)
    fast.save_pretrained(bare)
    return Transformer(str(bare), max_seq_length=length)


def static_embedding(tokenizer, seed):
    table = np.random.default_rng(seed).normal(size=(tokenizer.get_vocab_size(), 40))
    return StaticEmbedding(tokenizer, embedding_weights=table.astype(np.float32))


def model2vec(texts, folder, tokenizer):
    """Models as model2vec writes them. In one of them, tokens share rows of the table and have weights."""
    from model2vec import StaticModel

    random = np.random.default_rng(2)
    size = tokenizer.get_vocab_size()
    table = random.normal(size=(size, 40)).astype(np.float32)
    plain = StaticModel(table, tokenizer, normalize=True)
    shared = StaticModel(table[:100], tokenizer, weights=random.uniform(0.1, 2, size=size).astype(np.float32),
                         token_mapping=random.integers(100, size=size))
    for name, model in {"static-model2vec": plain, "static-model2vec-shared": shared}.items():
        model.save_pretrained(folder / name)
        model = StaticModel.from_pretrained(folder / name)
        model.embedding = model.embedding.astype(np.float64)
        np.save(folder / f"{name}.npy", model.encode(texts, max_length=None).astype(np.float32))
        print(name)


def models(texts, folder):
    pieces, pairs, grams = word_pieces(texts), byte_pairs(texts), unigrams(texts)
    made = {}

    def add(name, kind, learnt, pooling, *more, length=None, prompts=None, default=None):
        seed = len(made) + 1
        base = transformer(kind, learnt, folder, seed, length)
        pool = pooling if isinstance(pooling, Pooling) else Pooling(40, pooling_mode=pooling)
        made[name] = SentenceTransformer(modules=[base, pool, *more], prompts=prompts, default_prompt_name=default, device="cpu")

    def dense(inputs, outputs, function, bias=True):
        torch.manual_seed(inputs)
        return Dense(inputs, outputs, bias=bias, activation_function=function)

    prompts = {"query": "the question: ", "document": "the answer: "}
    add("bert-mean", "bert", pieces, "mean")
    add("bert-cls-normalized", "bert", pieces, "cls", Normalize())
    add("bert-max", "bert", pieces, "max")
    add("bert-sqrt", "bert", pieces, "mean_sqrt_len_tokens")
    add("bert-weighted", "bert", pieces, "weightedmean")
    add("bert-last", "bert", pieces, "lasttoken")
    add("bert-cls-and-mean", "bert", pieces, ("cls", "mean"), Normalize())
    add("bert-dense", "bert", pieces, "mean", dense(40, 24, torch.nn.Tanh()), Normalize())
    add("bert-two-dense", "bert", pieces, "mean", dense(40, 56, torch.nn.ReLU()), dense(56, 16, torch.nn.Identity(), bias=False))
    add("bert-short", "bert", pieces, "mean", length=16)
    add("bert-prompts", "bert", pieces, "mean", prompts=prompts)
    add("bert-default-prompt", "bert", pieces, "mean", prompts=prompts, default="document")
    add("bert-prompts-left-out", "bert", pieces, Pooling(40, pooling_mode="mean", include_prompt=False), prompts=prompts)
    add("roberta", "roberta", pairs, "mean", Normalize())
    add("xlm-roberta", "xlm-roberta", grams, "mean", Normalize())
    add("xlm-roberta-prompts", "xlm-roberta", grams, "mean", Normalize(), prompts={"query": "query: ", "passage": "passage: "})
    add("distilbert", "distilbert", pieces, "cls")
    add("mpnet", "mpnet", mpnet_pieces(texts), "mean", Normalize())
    add("modernbert", "modernbert", pairs, "mean", Normalize())
    add("modernbert-cls", "modernbert", pieces, "cls")
    add("nomic", "nomic", pieces, "mean", Normalize())
    add("gte", "gte", pieces, "cls", Normalize())
    add("gte-extended", "gte-extended", pieces, "cls", Normalize())
    add("qwen3", "qwen3", pairs, "lasttoken", Normalize())
    add("gemma3", "gemma3", grams, "mean", dense(40, 56, torch.nn.Identity(), bias=False), Normalize())
    made["static"] = SentenceTransformer(modules=[static_embedding(pieces[0], 1)], device="cpu")
    modules = [static_embedding(grams[0], 3), dense(40, 24, torch.nn.Tanh()), Normalize()]
    made["static-prompts"] = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    model2vec(texts, folder, pieces[0])
    for name, model in made.items():
        model.save(str(folder / name), create_model_card=False)
        # What a folder says counts, not what is in memory.
        model = SentenceTransformer(str(folder / name), device="cpu")
        if name.startswith("static"):
            # In f32, the sum over the tokens of the longest text has an error of 4e-5.
            model = model.double()
        np.save(folder / f"{name}.npy", encode(model, texts))
        for prompt in model.prompts:
            if model.prompts[prompt]:
                np.save(folder / f"{name}.{prompt}.npy", encode(model, texts, prompt))
        if name == "gte-extended":
            # The keys of the models that were published with their own code.
            path = folder / name / "config.json"
            config = json.loads(path.read_text("utf-8"))
            config.pop("rope_parameters")
            config |= {"model_type": "new", "architectures": ["NewModel"], "position_embedding_type": "rope",
                       "rope_theta": 20_000, "rope_scaling": {"type": "ntk", "factor": 2.0}}
            path.write_text(json.dumps(config), "utf-8")
        print(name)


def read_pairs(path):
    lines = pathlib.Path(path).read_text("utf-8").split("\n")
    return [tuple(json.loads(line)) for line in lines if line]


def framed(learnt):
    """The tokenizer with the special tokens of BERT around a text and around a pair."""
    from tokenizers import processors

    tokenizer, names = learnt
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")])
    return tokenizer, names


def scorers(pairs, folder, size=None):
    import transformers
    from sentence_transformers import CrossEncoder
    from transformers import PreTrainedTokenizerFast

    texts = [text for pair in pairs for text in pair]
    widths = dict(WIDTHS)
    kinds = {"bert": framed(word_pieces(texts)), "roberta": byte_pairs(texts), "xlm-roberta": unigrams(texts),
             "distilbert": framed(word_pieces(texts)), "mpnet": mpnet_pieces(texts)}
    if size == "small":
        widths = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 2}
        kinds = {"bert": kinds["bert"]}
    else:
        kinds |= {"modernbert": byte_pairs(texts), "modernbert-mean": framed(word_pieces(texts)),
                  "nomic": framed(word_pieces(texts)), "gte": byte_pairs(texts)}
    for seed, (kind, (tokenizer, names)) in enumerate(kinds.items()):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        inputs = ["input_ids", "token_type_ids", "attention_mask"] if kind in ("bert", "nomic") else ["input_ids", "attention_mask"]
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=48, model_input_names=inputs, **names)
        torch.manual_seed(seed + 100)
        common = {"vocab_size": len(fast), "pad_token_id": fast.pad_token_id, "initializer_range": 0.3, "num_labels": 1}
        places = {"max_position_embeddings": 98, "type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2}
        if kind == "distilbert":
            config = transformers.DistilBertConfig(dim=40, n_heads=5, hidden_dim=72, n_layers=3, max_position_embeddings=96, **common)
        elif kind == "bert":
            config = transformers.BertConfig(max_position_embeddings=96, **widths, **common)
        elif kind == "roberta":
            config = transformers.RobertaConfig(**places, **widths, **common)
        elif kind.startswith("modernbert"):
            config = transformers.ModernBertConfig(
                max_position_embeddings=96, local_attention=12, global_attn_every_n_layers=2, cls_token_id=None,
                sep_token_id=None, bos_token_id=None, eos_token_id=None, classifier_bias=kind == "modernbert",
                classifier_pooling="mean" if kind == "modernbert-mean" else "cls", **widths, **common)
        elif kind == "nomic":
            config = transformers.NomicBertConfig(max_position_embeddings=96, **widths, **common)
        elif kind == "gte":
            config = transformers.GteConfig(max_position_embeddings=96, type_vocab_size=1, **widths, **common)
        elif kind == "mpnet":
            places.pop("type_vocab_size")
            config = transformers.MPNetConfig(**places, **widths, **common)
        else:
            config = transformers.XLMRobertaConfig(**places, **widths, **common)
        model = transformers.AutoModelForSequenceClassification.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias") or "norm" in name.lower():
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        bare = folder / f".{kind}"
        model.save_pretrained(bare)
        fast.save_pretrained(bare)
        # One of them shows the output itself, not a probability.
        function = torch.nn.Identity() if kind == "roberta" else None
        CrossEncoder(str(bare), device="cpu", activation_fn=function).save_pretrained(str(folder / kind))
        print(kind)


def pair_scores(model, pairs):
    from sentence_transformers import CrossEncoder

    # One pair at a time, so that padding has no effect.
    scorer = CrossEncoder(model, device="cpu")
    print(json.dumps([float(scorer.predict([pair], show_progress_bar=False)[0]) for pair in pairs]))


def main(command, *arguments):
    torch.set_num_threads(1)
    if command == "vectors":
        model, texts, out, *prompt = arguments
        np.save(out, encode(SentenceTransformer(model, device="cpu"), read(texts), *prompt))
    elif command == "models":
        texts, folder = arguments
        models(read(texts), pathlib.Path(folder))
    elif command == "scorers":
        pairs, folder, *size = arguments
        scorers(read_pairs(pairs), pathlib.Path(folder), *size)
    elif command == "scores":
        model, pairs = arguments
        pair_scores(model, read_pairs(pairs))
    elif command == "nearest":
        vectors, base, k = np.load(arguments[0]), int(arguments[1]), int(arguments[2])
        scores = vectors[base:] @ vectors[:base].T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        print(json.dumps([[(int(row), float(s[row])) for row in rows] for rows, s in zip(best, scores)]))
    elif command == "versions":
        for package in ("sentence-transformers", "transformers", "torch", "tokenizers", "numpy"):
            print(f"{package} {importlib.metadata.version(package)}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
