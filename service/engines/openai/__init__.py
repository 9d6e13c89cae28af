"""An engine whose model runs in another program: any server that speaks OpenAI's completions, such as vLLM."""
