from turnwise import Pending, SyncClient

with SyncClient("http://127.0.0.1:8000/mcp") as client:
    call = client.begin("greet", {"city": "Ulm"})

if isinstance(call, Pending):
    print(call.state)
