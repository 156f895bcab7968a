"""The Model Context Protocol's own client against a server of ours: `python mcp_client.py URL`, or `… PROGRAM ARGUMENTS`."""

import asyncio
import importlib.metadata
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client


def server():
    if sys.argv[1].startswith("http"):
        return sys.argv[1]
    return stdio_client(StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ)))


def found(result):
    assert not result.is_error, result
    return result.structured_content or json.loads(result.content[0].text)


async def main():
    async with Client(server()) as client:
        assert client.server_info.name == "turnwise"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "similar", "respond", "get_dialogue"}, tools
        assert "query" in tools["search"].input_schema["properties"]
        hits = found(await client.call_tool("search", {"query": "my parcel never came", "k": 3}))["hits"]
        assert len(hits) == 3, hits
        like = found(await client.call_tool("similar", {"id": hits[0]["id"], "k": 2}))["hits"]
        assert len(like) == 2 and hits[0]["id"] not in [hit["id"] for hit in like], like
        asked = {"context": ["hello", "my parcel never came"], "k": 2}
        replies = found(await client.call_tool("respond", asked))["replies"]
        assert len(replies) == 2 and replies[0]["text"] == replies[0]["said"]["turn"]["text"], replies
        dialogue = found(await client.call_tool("get_dialogue", {"id": hits[0]["dialogue"]}))
        assert dialogue["turns"][hits[0]["turn"]["number"] - 1]["text"] == hits[0]["turn"]["text"]
        # What went wrong is told to the assistant, which can mend it.
        wrong = await client.call_tool("search", {"query": "x", "filter": "domian=banking"})
        assert wrong.is_error and "domain" in wrong.content[0].text, wrong
    print(f"mcp {importlib.metadata.version('mcp')}: done")


asyncio.run(main())
