"""A program that receives pushes, written by the text of UnifiedPush's D-Bus specification: it knows nothing of the distributor
but its name on the bus. Each line of its log is a call that it got, or an answer.

    connector.py LOG                       serves until it is ended, or had nothing to do for 2 s after a message
    connector.py LOG register VERSION TOKEN [KEY]    registers, and serves
    connector.py LOG unregister VERSION TOKEN        ends a registration, and serves

SERVICE is its name on the bus, and VERSION its version of the specification if no argument says it."""

import json, os, sys

import dbus, dbus.service
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib

SERVICE = os.environ.get("SERVICE", "org.example.Chat")
DISTRIBUTOR = "org.unifiedpush.Distributor.nightbell"
log = open(sys.argv[1], "a", buffering=1)


def note(*words):
    log.write(json.dumps(words) + "\n")


def plain(arguments):
    return {str(name): bytes(value).hex() if name == "message" else str(value) for name, value in arguments.items()}


class Connector(dbus.service.Object):
    @dbus.service.method("org.unifiedpush.Connector2", in_signature="a{sv}", out_signature="a{sv}")
    def Message(self, arguments):
        note("message", 2, plain(arguments))
        return {"id": arguments["id"]}

    @dbus.service.method("org.unifiedpush.Connector2", in_signature="a{sv}", out_signature="a{sv}")
    def NewEndpoint(self, arguments):
        note("endpoint", 2, plain(arguments))
        return dbus.Dictionary({}, signature="sv")

    @dbus.service.method("org.unifiedpush.Connector2", in_signature="a{sv}", out_signature="a{sv}")
    def Unregistered(self, arguments):
        note("unregistered", 2, plain(arguments))
        return dbus.Dictionary({}, signature="sv")


class OldConnector(dbus.service.Object):
    @dbus.service.method("org.unifiedpush.Connector1", in_signature="says")
    def Message(self, token, message, identifier):
        note("message", 1, {"token": str(token), "message": bytes(message).hex(), "id": str(identifier)})

    @dbus.service.method("org.unifiedpush.Connector1", in_signature="ss")
    def NewEndpoint(self, token, endpoint):
        note("endpoint", 1, {"token": str(token), "endpoint": str(endpoint)})

    @dbus.service.method("org.unifiedpush.Connector1", in_signature="s")
    def Unregistered(self, token):
        note("unregistered", 1, {"token": str(token)})


DBusGMainLoop(set_as_default=True)
bus = dbus.SessionBus()
version = sys.argv[3] if len(sys.argv) > 3 else os.environ.get("VERSION", "2")
connector = (OldConnector if version == "1" else Connector)(bus, "/org/unifiedpush/Connector")
name = dbus.service.BusName(SERVICE, bus)
note("serves")
if len(sys.argv) > 2:
    distributor = bus.get_object(DISTRIBUTOR, "/org/unifiedpush/Distributor")
    call = getattr(dbus.Interface(distributor, "org.unifiedpush.Distributor" + version), sys.argv[2].capitalize())
    token, key = sys.argv[4], sys.argv[5:]
    if version == "1":
        arguments = [SERVICE, token, "a chat"] if sys.argv[2] == "register" else [token]
    else:
        arguments = [{"token": token}]
        if sys.argv[2] == "register":
            arguments[0].update(service=SERVICE, description="a chat", **({"vapid": key[0]} if key else {}))
    answered = lambda *answer: note("answer", [plain(one) if isinstance(one, dict) else str(one) for one in answer])
    call(*arguments, reply_handler=answered, error_handler=lambda problem: note("error", str(problem)))
GLib.MainLoop().run()
