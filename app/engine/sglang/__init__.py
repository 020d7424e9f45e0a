"""The real engine: SGLang's own servers, started with its own flags."""
