"""A server of S3 with the bucket `shards`. Says where it is, then does what each line of standard input asks for:
`list`, `delete BEGINNING` (of a name), `cut BEGINNING`. Ends with its input."""

import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
endpoint = f"http://{host}:{port}"
s3 = boto3.client(
    "s3",
    endpoint_url=endpoint,
    region_name="us-east-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
s3.create_bucket(Bucket="shards")
print(endpoint, flush=True)

for line in sys.stdin:
    command, _, beginning = line.strip().partition(" ")
    objects = s3.list_objects_v2(Bucket="shards", Prefix=beginning).get("Contents", [])
    for found in objects:
        key = found["Key"]
        if command == "delete":
            s3.delete_object(Bucket="shards", Key=key)
        elif command == "cut" and not key.endswith(".json"):
            body = s3.get_object(Bucket="shards", Key=key)["Body"].read()
            s3.put_object(Bucket="shards", Key=key, Body=bytes(len(body)))
    # How many parts an object was put in is told by its tag.
    tags = [(found["Key"], found["ETag"].strip('"')) for found in objects]
    print(" ".join(f"{key}:{tag}" for key, tag in tags), flush=True)
server.stop()
