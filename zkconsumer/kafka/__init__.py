"""The broker border: connections, metadata, fetchers, offset stores."""
