"""The browser app, ``pnpcm app``: a page on this machine for the restoration of images.

``form`` (values of the page → task, options, command line, Python code), ``work`` (one restoration
after the other, limits, temporary files) and ``view`` (what is shown of a result) need no Gradio;
``page`` is the layout, ``server`` the web server.
"""
