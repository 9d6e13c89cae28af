"""`peakplan bench vllm`: vLLM itself on this machine's processor, before the gateway's own engine, beside our replicas.

`environment.py` installs it apart from ours, `server.py` starts it with the fleet's arguments, `__main__.py` measures.
"""
