"""The programs, each with its real traffic."""

from . import chats, phones, runtimes, servers, stdio

ALL = [
    phones.Baresip,
    chats.Irssi,
    chats.Weechat,
    chats.MosquittoSub,
    stdio.ContextServer,
    stdio.Clangd,
    servers.Redis,
    servers.Nginx,
    servers.Postgres,
    servers.PythonHTTP,
    servers.Ssh,
    runtimes.NodeWebSocket,
    runtimes.Asyncio,
    runtimes.Threads,
    runtimes.Go,
    runtimes.Java,
]
