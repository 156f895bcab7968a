"""OpenAI's own client against a server of ours: `python openai_client.py http://127.0.0.1:7700/v1 KEY`.

With `words` behind it, the model is one of words, which has no ids of tokens.
"""

import asyncio
import math
import sys

import openai

base, key, *kind = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)


def refused(kind, **wanted):
    try:
        client.embeddings.create(**wanted)
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was to come of {wanted}")


[model] = client.models.list().data
assert client.models.retrieve(model.id).id == model.id

# A text, several, and both encodings: the client asks for base64 by itself.
one = client.embeddings.create(model=model.id, input="my parcel never came")
vector = one.data[0].embedding
assert one.object == "list" and one.model == model.id and one.data[0].index == 0
assert one.usage.prompt_tokens == one.usage.total_tokens > 0
assert math.isclose(sum(x * x for x in vector), 1, rel_tol=1e-3)
several = client.embeddings.create(model=model.id, input=["a late train", "my parcel never came"])
assert [item.index for item in several.data] == [0, 1]
assert several.data[1].embedding == vector
assert several.usage.prompt_tokens > one.usage.prompt_tokens
floats = client.embeddings.create(model=model.id, input="my parcel never came", encoding_format="float")
assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(floats.data[0].embedding, vector, strict=True))

# Fewer numbers, of length one again; and token ids.
few = client.embeddings.create(model=model.id, input="my parcel never came", dimensions=8).data[0].embedding
assert len(few) == 8 and math.isclose(sum(x * x for x in few), 1, rel_tol=1e-3)
if kind == ["words"]:
    assert "does not support token ids" in str(refused(openai.BadRequestError, model=model.id, input=[[1, 2, 3], [4]]).body)
else:
    ids = client.embeddings.create(model=model.id, input=[[1, 2, 3], [4]])
    assert len(ids.data) == 2 and ids.usage.prompt_tokens >= 4
    assert client.embeddings.create(model=model.id, input=[4]).data[0].embedding == ids.data[1].embedding

# Its own exceptions, made of our errors.
assert "dimensions" in str(refused(openai.BadRequestError, model=model.id, input="x", dimensions=99999).body)
assert "input[1] is empty" in str(refused(openai.BadRequestError, model=model.id, input=["x", ""]).body)
assert refused(openai.BadRequestError, model=model.id, input=[]).body["message"]
try:
    client.models.retrieve("no-such-model")
    raise AssertionError("there is no such model")
except openai.NotFoundError as e:
    assert e.body["param"] == "model"
stranger = client.with_options(api_key="nobody")
try:
    stranger.models.list()
    raise AssertionError("a stranger was let in")
except openai.AuthenticationError as e:
    assert e.status_code == 401 and e.body["code"]


async def at_once():
    """What comes together is answered like what comes alone."""
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0) as many:
        asked = [many.embeddings.create(model=model.id, input="my parcel never came") for _ in range(20)]
        assert all(answer.data[0].embedding == vector for answer in await asyncio.gather(*asked))


asyncio.run(at_once())
print(f"openai {openai.__version__}: done")
