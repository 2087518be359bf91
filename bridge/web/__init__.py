"""``zkconsumer web``: a page in the browser that shows groups, their lag and their migrations; it changes nothing.

    page_documents, group_changes,       pure: snapshots in; what the page shows, and events, out
      lag_series
    request_checks, web_sessions         pure: whether a request is answered (Host, Origin, token, cookie, limits)
    top_rows                             pure: the rows, the order and the keys of ``zkconsumer groups top``
    read_state                           pure: the last good document beside the last error; when to read next
    document_readers                     one function for each document: a session in, the document of a command out
    cluster_watcher                      the threads that read, shared by all viewers
    event_stream, page_app               the ASGI application
    page_server                          sockets, TLS, uvicorn
    static/                              HTML, CSS and ES modules, no build step; ``vendor/`` is uPlot with its licence

A document is exactly what a command prints with ``-o json``.  The page adds what no command prints: history, changes,
and the phase line.
"""
