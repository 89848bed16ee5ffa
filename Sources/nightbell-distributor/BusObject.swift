import CSystemd
import Glibc

/// A method call that a peer has made, as long as its handler runs.
@safe
struct MethodCall {
    private let message: OpaquePointer
    let interface: String
    let member: String

    /// Longer texts are no valid arguments.
    private static let longestText = 1_000

    fileprivate init?(_ message: OpaquePointer) {
        guard let interface = unsafe Self.copy(sd_bus_message_get_interface(message)),
            let member = unsafe Self.copy(sd_bus_message_get_member(message))
        else { return nil }
        unsafe self.message = message
        self.interface = interface
        self.member = member
    }

    @unsafe private static func copy(_ text: UnsafePointer<CChar>?) -> String? {
        guard let text = unsafe text, unsafe strnlen(text, longestText + 1) <= longestText else { return nil }
        return unsafe String(cString: text)
    }

    // MARK: Arguments

    /// Further strings; nil: the next argument is none, or too long.
    func nextText() -> String? {
        var pointer: UnsafePointer<CChar>?
        guard unsafe sd_bus_message_read_basic(message, code("s"), &pointer) > 0 else { return nil }
        return unsafe Self.copy(pointer)
    }

    /// The strings of a dictionary of variants; nil: it is none.
    func texts() -> [String: String]? {
        var texts: [String: String] = [:]
        guard unsafe sd_bus_message_enter_container(message, code("a"), "{sv}") >= 0 else { return nil }
        while unsafe sd_bus_message_enter_container(message, code("e"), "sv") > 0 {
            guard let name = nextText() else { return nil }
            if unsafe sd_bus_message_enter_container(message, code("v"), "s") > 0 {
                guard let value = nextText(), unsafe sd_bus_message_exit_container(message) >= 0 else {
                    return nil
                }
                texts[name] = value
            } else if unsafe sd_bus_message_skip(message, "v") < 0 {
                return nil
            }
            guard unsafe sd_bus_message_exit_container(message) >= 0 else { return nil }
        }
        guard unsafe sd_bus_message_exit_container(message) >= 0 else { return nil }
        return texts
    }

    // MARK: Answers

    func answer(_ write: (MessageWriter) -> Bool) {
        var made: OpaquePointer?
        guard unsafe sd_bus_message_new_method_return(message, &made) >= 0, let reply = unsafe made else {
            return
        }
        defer { unsafe sd_bus_message_unref(reply) }
        guard write(unsafe MessageWriter(reply)) else { return }
        _ = unsafe sd_bus_send(nil, reply, nil)
    }

    func refuse() {
        _ = unsafe sd_bus_reply_method_errno(message, -EINVAL, nil)
    }
}

/// Writes the arguments of a message. Each returns whether it could.
@safe
struct MessageWriter {
    private let message: OpaquePointer

    init(_ message: OpaquePointer) { unsafe self.message = message }

    func text(_ value: String) -> Bool { unsafe sd_bus_message_append_basic(message, code("s"), value) >= 0 }

    func bytes(_ value: [UInt8]) -> Bool {
        unsafe sd_bus_message_append_array(message, code("y"), value, value.count) >= 0
    }

    enum Value {
        case text(String)
        case bytes([UInt8])
    }

    func dictionary(_ values: [(String, Value)]) -> Bool {
        guard unsafe sd_bus_message_open_container(message, code("a"), "{sv}") >= 0 else { return false }
        for (name, value) in values {
            guard unsafe sd_bus_message_open_container(message, code("e"), "sv") >= 0, text(name) else {
                return false
            }
            switch value {
            case .text(let value): guard variant("s", { text(value) }) else { return false }
            case .bytes(let value): guard variant("ay", { bytes(value) }) else { return false }
            }
            guard unsafe sd_bus_message_close_container(message) >= 0 else { return false }
        }
        return unsafe sd_bus_message_close_container(message) >= 0
    }

    private func variant(_ contents: String, _ write: () -> Bool) -> Bool {
        guard unsafe sd_bus_message_open_container(message, code("v"), contents) >= 0, write() else {
            return false
        }
        return unsafe sd_bus_message_close_container(message) >= 0
    }
}

private func code(_ type: Character) -> CChar { CChar(bitPattern: type.asciiValue ?? 0) }

/// A call to a peer that is on its way, or an object that peers call; releasing it ends that.
@safe
final class BusHold {
    private var slot: OpaquePointer?
    private let onReply: (Bool) -> Void
    private let onCall: (MethodCall) -> Void

    private init(onReply: @escaping (Bool) -> Void, onCall: @escaping (MethodCall) -> Void) {
        self.onReply = onReply
        self.onCall = onCall
    }

    deinit { unsafe sd_bus_slot_unref(slot) }

    /// Calls a method of a peer, which the bus starts if it can.
    ///
    /// - Parameter onReply: called with whether the peer has answered without an error.
    /// - Returns: nil: it could not be sent.
    @unsafe static func call(
        _ bus: OpaquePointer, _ destination: String, _ path: String, _ interface: String, _ member: String,
        milliseconds: UInt64, _ write: (MessageWriter) -> Bool, onReply: @escaping (Bool) -> Void
    ) -> BusHold? {
        var made: OpaquePointer?
        let result = unsafe sd_bus_message_new_method_call(bus, &made, destination, path, interface, member)
        guard result >= 0, let message = unsafe made else { return nil }
        defer { unsafe sd_bus_message_unref(message) }
        guard write(unsafe MessageWriter(message)) else { return nil }
        let hold = BusHold(onReply: onReply, onCall: { _ in })
        let context = unsafe Unmanaged.passUnretained(hold).toOpaque()
        let sent = unsafe sd_bus_call_async(bus, &hold.slot, message, replied, context, milliseconds * 1_000)
        return sent >= 0 ? hold : nil
    }

    /// An object of this process, and a name by which peers find it.
    @unsafe static func object(
        _ bus: OpaquePointer, _ path: String, name: String, onCall: @escaping (MethodCall) -> Void
    ) -> BusHold? {
        let hold = BusHold(onReply: { _ in }, onCall: onCall)
        let context = unsafe Unmanaged.passUnretained(hold).toOpaque()
        guard unsafe sd_bus_add_object(bus, &hold.slot, path, called, context) >= 0,
            // Another distributor of this name goes on until it ends.
            unsafe sd_bus_request_name_async(bus, nil, name, 0, nil, nil) >= 0
        else { return nil }
        return hold
    }

    fileprivate func reply(_ isDone: Bool) { onReply(isDone) }
    fileprivate func take(_ call: MethodCall) { onCall(call) }
}

private func replied(
    _ message: OpaquePointer?, _ argument: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> CInt {
    guard let message = unsafe message, let argument = unsafe argument else { return 0 }
    let hold = unsafe Unmanaged<BusHold>.fromOpaque(argument).takeUnretainedValue()
    hold.reply(unsafe sd_bus_message_is_method_error(message, nil) == 0)
    return 0
}

private func called(
    _ message: OpaquePointer?, _ argument: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> CInt {
    guard let message = unsafe message, let argument = unsafe argument,
        let call = unsafe MethodCall(message),
        call.interface.hasPrefix("org.unifiedpush.")
            || call.interface == "org.freedesktop.DBus.Introspectable"
    else { return 0 }
    unsafe Unmanaged<BusHold>.fromOpaque(argument).takeUnretainedValue().take(call)
    return 1
}
