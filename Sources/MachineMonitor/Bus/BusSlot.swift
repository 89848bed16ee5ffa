import CSystemd

/// A rule or a call in progress, with its handler; releasing it ends both.
@safe
final class BusSlot {
    private var slot: OpaquePointer?
    private let handler: (BusReader) -> Void

    private init(_ handler: @escaping (BusReader) -> Void) { self.handler = handler }

    deinit { unsafe sd_bus_slot_unref(slot) }

    /// Signals that match a rule.
    @unsafe static func match(
        _ bus: OpaquePointer, _ rule: String, _ handler: @escaping (BusReader) -> Void
    ) -> BusSlot {
        let slot = BusSlot(handler)
        let context = unsafe Unmanaged.passUnretained(slot).toOpaque()
        // A rule that the bus refuses ends the connection, which is reported then.
        _ = unsafe sd_bus_add_match_async(bus, &slot.slot, rule, handleMessage, nil, context)
        return slot
    }

    /// The reply to a call, or the error. nil: it could not be sent.
    @unsafe static func call(
        _ bus: OpaquePointer, _ call: BusCall, _ handler: @escaping (BusReader) -> Void
    ) -> BusSlot? {
        var made: OpaquePointer?
        let result = unsafe sd_bus_message_new_method_call(
            bus, &made, call.destination, call.path, call.interface, call.member)
        guard result >= 0, let message = unsafe made else { return nil }
        defer { unsafe sd_bus_message_unref(message) }
        unsafe sd_bus_message_set_auto_start(message, 0)
        do throws(BusError) {
            try call.write(unsafe BusWriter(message))
        } catch {
            return nil
        }
        let slot = BusSlot(handler)
        let context = unsafe Unmanaged.passUnretained(slot).toOpaque()
        guard unsafe sd_bus_call_async(bus, &slot.slot, message, handleMessage, context, call.timeout) >= 0
        else {
            return nil
        }
        return slot
    }

    /// Sends a signal; it is lost if it cannot be sent. `call` has no destination.
    @unsafe static func emit(_ bus: OpaquePointer, _ call: BusCall) {
        var made: OpaquePointer?
        let result = unsafe sd_bus_message_new_signal(bus, &made, call.path, call.interface, call.member)
        guard result >= 0, let message = unsafe made else { return }
        defer { unsafe sd_bus_message_unref(message) }
        do throws(BusError) {
            try call.write(unsafe BusWriter(message))
        } catch {
            return
        }
        _ = unsafe sd_bus_send(bus, message, nil)
    }

    fileprivate func handle(_ message: BusReader) { handler(message) }
}

/// A method call; the service is not started for it.
struct BusCall {
    var destination: String
    var path: String
    var interface: String
    var member: String
    /// In microseconds; 0: sd-bus's own (25 s).
    var timeout: UInt64 = 0
    var write: (BusWriter) throws(BusError) -> Void = { (_) throws(BusError) in }
}

/// The callback for every slot; the argument is the slot.
private func handleMessage(
    _ message: OpaquePointer?, _ argument: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> CInt {
    guard let message = unsafe message, let argument = unsafe argument else { return 0 }
    // The handler may release the slot.
    let slot = unsafe Unmanaged<BusSlot>.fromOpaque(argument).takeUnretainedValue()
    slot.handle(unsafe BusReader(message))
    return 0
}
