"""An engine whose model runs in another server with OpenAI's completions interface, such as vLLM."""
