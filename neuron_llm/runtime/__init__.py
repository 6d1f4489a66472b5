"""From an artifact to text: engine, model runner, sampling, batch jobs and chat."""
