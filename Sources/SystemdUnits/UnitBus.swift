import CSystemd
import Glibc
import LinuxSystem

/// Why systemd, or the bus, has not done what it was asked for.
package struct UnitFailure: Error, CustomStringConvertible {
    /// The name of D-Bus for it, such as `org.freedesktop.systemd1.NoSuchUnit`; empty: it is none of D-Bus.
    package let name: String
    package let description: String

    init(_ description: String, name: String = "") {
        self.description = description
        self.name = name
    }

    package var isOfRights: Bool {
        [
            "org.freedesktop.DBus.Error.AccessDenied",
            "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
        ].contains(name)
    }
}

/// A connection to the service manager, for calls that are waited for.
@safe
final class UnitBus {
    private let bus: OpaquePointer
    private var slot: OpaquePointer?
    private var watchedUnit = ""
    private let onJob: () -> Void

    private static let manager = "org.freedesktop.systemd1"
    private static let managerPath = "/org/freedesktop/systemd1"

    /// Of root the system's service manager, of others their own.
    ///
    /// - Parameter onJob: called, within `process`, when a job for the unit has been made.
    init(onJob: @escaping () -> Void) throws(UnitFailure) {
        var made: OpaquePointer?
        let result = unsafe geteuid() == 0 ? sd_bus_open_system(&made) : sd_bus_open_user(&made)
        guard result >= 0, let made = unsafe made else {
            throw UnitFailure("systemd cannot be reached over D-Bus: \(SystemError.message(for: -result))")
        }
        unsafe bus = made
        // Also for properties.
        unsafe sd_bus_set_method_call_timeout(made, 5_000_000)
        self.onJob = onJob
    }

    deinit {
        unsafe sd_bus_slot_unref(slot)
        unsafe sd_bus_flush_close_unref(bus)
    }

    var descriptor: CInt { unsafe sd_bus_get_fd(bus) }

    // MARK: Calls

    /// Has the manager do something with a unit.
    ///
    /// - Parameter time: how long to wait for the answer.
    func call(_ member: String, _ unit: String? = nil, within time: Duration = .seconds(5))
        throws(UnitFailure)
    {
        _ = try unsafe call(member, unit, within: time) { _ in "" }
    }

    /// The object of a unit that systemd knows.
    func path(of unit: String) throws(UnitFailure) -> String {
        try unsafe call("GetUnit", unit, within: .seconds(5)) { message in
            var path: UnsafePointer<CChar>?
            let result = unsafe sd_bus_message_read_basic(
                message, CChar(UInt8(ascii: "o")), &path)
            guard result > 0, let path = unsafe path else { return nil }
            return unsafe String(cString: path)
        }
    }

    private func call(
        _ member: String, _ unit: String?, within time: Duration,
        _ read: (OpaquePointer) -> String?
    ) throws(UnitFailure) -> String {
        var made: OpaquePointer?
        let result = unsafe sd_bus_message_new_method_call(
            bus, &made, Self.manager, Self.managerPath, Self.manager + ".Manager", member)
        guard result >= 0, let message = unsafe made else { throw Self.failure(result) }
        defer { unsafe sd_bus_message_unref(message) }
        if let unit {
            let added = unsafe sd_bus_message_append_basic(message, CChar(UInt8(ascii: "s")), unit)
            guard added >= 0 else { throw Self.failure(added) }
        }
        var error = unsafe sd_bus_error()
        defer { unsafe sd_bus_error_free(&error) }
        var reply: OpaquePointer?
        let microseconds = UInt64(time / .microseconds(1))
        let called = unsafe sd_bus_call(bus, message, microseconds, &error, &reply)
        guard called >= 0, let reply = unsafe reply else { throw unsafe Self.failure(called, error) }
        defer { unsafe sd_bus_message_unref(reply) }
        guard let answer = unsafe read(reply) else {
            throw UnitFailure("systemd's answer to \(member) is not understood")
        }
        return answer
    }

    private static func failure(_ result: CInt) -> UnitFailure {
        UnitFailure(SystemError.message(for: -result))
    }

    @unsafe private static func failure(_ result: CInt, _ error: sd_bus_error) -> UnitFailure {
        guard let message = unsafe error.message else { return failure(result) }
        return unsafe UnitFailure(
            String(cString: message), name: error.name.map { unsafe String(cString: $0) } ?? "")
    }

    // MARK: Properties

    func text(_ property: String, of interface: String, at path: String) throws(UnitFailure) -> String {
        var error = unsafe sd_bus_error()
        defer { unsafe sd_bus_error_free(&error) }
        var text: UnsafeMutablePointer<CChar>?
        let result = unsafe sd_bus_get_property_string(
            bus, Self.manager, path, Self.manager + "." + interface, property, &error, &text)
        guard result >= 0, let text = unsafe text else { throw unsafe Self.failure(result, error) }
        defer { unsafe free(text) }
        return unsafe String(cString: text)
    }

    /// The manager's version, such as `257.8-1`.
    func version() throws(UnitFailure) -> String {
        try text("Version", of: "Manager", at: Self.managerPath)
    }

    /// - Parameter type: of D-Bus: `b` and `u` have 32 bits, `t` 64.
    func number(_ property: String, _ type: Character, of interface: String, at path: String)
        throws(UnitFailure) -> UInt64
    {
        var error = unsafe sd_bus_error()
        defer { unsafe sd_bus_error_free(&error) }
        // The rest stays zero on machines with little-endian numbers, which all of ours are.
        var number: UInt64 = 0
        let code = CChar(truncatingIfNeeded: type.asciiValue ?? 0)
        let result = unsafe sd_bus_get_property_trivial(
            bus, Self.manager, path, Self.manager + "." + interface, property, &error, code, &number)
        guard result >= 0 else { throw unsafe Self.failure(result, error) }
        return number
    }

    // MARK: Jobs

    /// Has `onJob` called for jobs of a unit.
    func watchJobs(of unit: String) throws(UnitFailure) {
        watchedUnit = unit
        try call("Subscribe")
        let rule = """
            type='signal',sender='\(Self.manager)',path='\(Self.managerPath)',\
            interface='\(Self.manager).Manager',member='JobNew'
            """
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        let result = unsafe sd_bus_add_match(bus, &slot, rule, handleJob, context)
        guard result >= 0 else { throw Self.failure(result) }
    }

    /// sd-bus matches arguments only as long as all before them are texts.
    @unsafe fileprivate func jobBegins(_ message: OpaquePointer) {
        var name: UnsafePointer<CChar>?
        guard unsafe sd_bus_message_skip(message, "uo") >= 0,
            unsafe sd_bus_message_read_basic(message, CChar(UInt8(ascii: "s")), &name) > 0,
            let name = unsafe name, unsafe String(cString: name) == watchedUnit
        else { return }
        onJob()
    }

    /// Handles what has come.
    ///
    /// - Returns: whether the connection is still there.
    func process() -> Bool {
        var result: CInt
        repeat {
            result = unsafe sd_bus_process(bus, nil)
        } while result > 0
        return result == 0
    }
}

private func handleJob(
    _ message: OpaquePointer?, _ argument: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> CInt {
    guard let message = unsafe message, let argument = unsafe argument else { return 0 }
    unsafe Unmanaged<UnitBus>.fromOpaque(argument).takeUnretainedValue().jobBegins(message)
    return 0
}
