import CSystemd
import Glibc

/// A call or a message that failed.
package struct BusError: Error, CustomStringConvertible {
    /// The D-Bus name, such as `org.freedesktop.DBus.Error.AccessDenied`; empty if it is none of D-Bus.
    var name = ""
    var text: String

    /// A message with other types than expected.
    static let unexpected = BusError(text: "a message with unexpected content")

    init(name: String = "", text: String) {
        self.name = name
        self.text = text
    }

    /// The negative result of a function of sd-bus.
    init(_ result: CInt) {
        var buffer = [CChar](repeating: 0, count: 128)
        let isKnown = unsafe strerror_r(-result, &buffer, buffer.count) == 0
        text =
            isKnown
            ? String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            : "error \(-result)"
    }

    package var description: String { name.isEmpty ? text : "\(name): \(text)" }
}

/// A property's value of those types that sources use.
enum BusValue: Equatable {
    case bool(Bool)
    case number(UInt32)
    case double(Double)
    /// A string or an object path.
    case text(String)
    case bytes([UInt8])
    /// Written only, as the next one.
    case byte(UInt8)
    case long(Int64)
    case other
}

/// Reads one message, as long as its handler runs. Everything read is checked and bounded: a peer can send
/// what it likes.
@safe
struct BusReader {
    private let message: OpaquePointer

    /// Longer texts and values are unexpected.
    private static let longestText = 4_096
    private static let longestBytes = 512

    init(_ message: OpaquePointer) { unsafe self.message = message }

    /// The unique name of the peer, which the bus itself writes.
    var sender: String? { unsafe Self.copy(sd_bus_message_get_sender(message)) }

    var path: String? { unsafe Self.copy(sd_bus_message_get_path(message)) }

    /// The error that a reply is.
    var error: BusError? {
        guard let error = unsafe sd_bus_message_get_error(message) else { return nil }
        let name = unsafe Self.copy(error.pointee.name) ?? ""
        return BusError(name: name, text: unsafe Self.copy(error.pointee.message) ?? "")
    }

    @unsafe private static func copy(_ text: UnsafePointer<CChar>?) -> String? {
        guard let text = unsafe text else { return nil }
        let length = unsafe strnlen(text, longestText)
        return unsafe String(
            decoding: UnsafeRawBufferPointer(start: text, count: length), as: UTF8.self)
    }

    // MARK: Values

    private func check(_ result: CInt) throws(BusError) {
        guard result > 0 else { throw BusError.unexpected }
    }

    func text() throws(BusError) -> String { try text("s") }

    func objectPath() throws(BusError) -> String { try text("o") }

    private func text(_ type: Character) throws(BusError) -> String {
        var pointer: UnsafePointer<CChar>?
        try check(unsafe sd_bus_message_read_basic(message, Self.code(type), &pointer))
        guard let text = unsafe pointer, unsafe strnlen(text, Self.longestText + 1) <= Self.longestText else {
            throw BusError.unexpected
        }
        return unsafe Self.copy(text) ?? ""
    }

    func number() throws(BusError) -> UInt32 {
        var value: UInt32 = 0
        try check(unsafe sd_bus_message_read_basic(message, Self.code("u"), &value))
        return value
    }

    func bool() throws(BusError) -> Bool {
        var value: CInt = 0
        try check(unsafe sd_bus_message_read_basic(message, Self.code("b"), &value))
        return value != 0
    }

    func double() throws(BusError) -> Double {
        var value = 0.0
        try check(unsafe sd_bus_message_read_basic(message, Self.code("d"), &value))
        return value
    }

    func bytes() throws(BusError) -> [UInt8] {
        var pointer: UnsafeRawPointer?
        var size = 0
        guard unsafe sd_bus_message_read_array(message, Self.code("y"), &pointer, &size) >= 0,
            size <= Self.longestBytes
        else { throw BusError.unexpected }
        return unsafe Array(UnsafeRawBufferPointer(start: pointer, count: size))
    }

    /// A descriptor, which stays the message's.
    func descriptor() throws(BusError) -> CInt {
        var value: CInt = -1
        try check(unsafe sd_bus_message_read_basic(message, Self.code("h"), &value))
        return value
    }

    func skip(_ types: String) throws(BusError) {
        guard unsafe sd_bus_message_skip(message, types) >= 0 else { throw BusError.unexpected }
    }

    // MARK: Containers

    /// Reads each element of an array.
    func array(of contents: String, _ body: () throws(BusError) -> Void) throws(BusError) {
        // Zero is an empty array.
        guard unsafe sd_bus_message_enter_container(message, Self.code("a"), contents) >= 0 else {
            throw BusError.unexpected
        }
        while unsafe sd_bus_message_at_end(message, 0) == 0 { try body() }
        try exit()
    }

    func structure(_ contents: String, _ body: () throws(BusError) -> Void) throws(BusError) {
        try container("r", contents, body)
    }

    func entry(_ contents: String, _ body: () throws(BusError) -> Void) throws(BusError) {
        try container("e", contents, body)
    }

    private func container(
        _ type: Character, _ contents: String, _ body: () throws(BusError) -> Void
    ) throws(BusError) {
        try check(unsafe sd_bus_message_enter_container(message, Self.code(type), contents))
        try body()
        try exit()
    }

    private func exit() throws(BusError) {
        guard unsafe sd_bus_message_exit_container(message) >= 0 else { throw BusError.unexpected }
    }

    /// A dictionary of properties.
    func properties(_ body: (_ name: String, _ value: BusValue) throws(BusError) -> Void) throws(BusError) {
        try array(of: "{sv}") { () throws(BusError) in
            try entry("sv") { () throws(BusError) in try body(text(), variant()) }
        }
    }

    func variant() throws(BusError) -> BusValue {
        var type: CChar = 0
        var contents: UnsafePointer<CChar>?
        try check(unsafe sd_bus_message_peek_type(message, &type, &contents))
        guard type == Self.code("v"), let signature = unsafe Self.copy(contents) else {
            throw BusError.unexpected
        }
        var value = BusValue.other
        try container("v", signature) { () throws(BusError) in
            switch signature {
            case "b": value = .bool(try bool())
            case "u": value = .number(try number())
            case "d": value = .double(try double())
            case "s": value = .text(try text())
            case "o": value = .text(try objectPath())
            case "ay": value = .bytes(try bytes())
            default: try skip(signature)
            }
        }
        return value
    }

    private static func code(_ type: Character) -> CChar { CChar(bitPattern: type.asciiValue ?? 0) }
}

/// Writes the arguments of a call.
@safe
struct BusWriter {
    private let message: OpaquePointer

    init(_ message: OpaquePointer) { unsafe self.message = message }

    private func check(_ result: CInt) throws(BusError) {
        guard result >= 0 else { throw BusError(result) }
    }

    func text(_ value: String) throws(BusError) {
        try check(unsafe sd_bus_message_append_basic(message, CChar(bitPattern: UInt8(ascii: "s")), value))
    }

    func objectPath(_ value: String) throws(BusError) {
        try check(unsafe sd_bus_message_append_basic(message, CChar(bitPattern: UInt8(ascii: "o")), value))
    }

    func number(_ value: UInt32) throws(BusError) {
        var value = value
        try check(unsafe sd_bus_message_append_basic(message, CChar(bitPattern: UInt8(ascii: "u")), &value))
    }

    func variant(_ value: BusValue) throws(BusError) {
        let contents: String
        switch value {
        case .number: contents = "u"
        case .text: contents = "s"
        case .bool: contents = "b"
        case .byte: contents = "y"
        case .long: contents = "x"
        case .double, .bytes, .other: throw BusError(text: "no argument has this type")
        }
        try container("v", contents) { () throws(BusError) in
            switch value {
            case .number(let number): try self.number(number)
            case .text(let text): try self.text(text)
            case .bool(let isTrue): try basic("b", CInt(isTrue ? 1 : 0))
            case .byte(let byte): try basic("y", byte)
            case .long(let long): try basic("x", long)
            case .double, .bytes, .other: break
            }
        }
    }

    func signed(_ value: Int32) throws(BusError) { try basic("i", value) }

    func array(of contents: String, _ body: () throws(BusError) -> Void) throws(BusError) {
        try container("a", contents, body)
    }

    func dictionary(_ body: () throws(BusError) -> Void) throws(BusError) {
        try array(of: "{sv}", body)
    }

    /// An entry of a dictionary.
    func property(_ name: String, _ value: BusValue) throws(BusError) {
        try container("e", "sv") { () throws(BusError) in
            try text(name)
            try variant(value)
        }
    }

    private func basic<Value: BitwiseCopyable>(_ type: Character, _ value: Value) throws(BusError) {
        var value = value
        try check(unsafe sd_bus_message_append_basic(message, Self.code(type), &value))
    }

    private func container(
        _ type: Character, _ contents: String, _ body: () throws(BusError) -> Void
    ) throws(BusError) {
        try check(unsafe sd_bus_message_open_container(message, Self.code(type), contents))
        try body()
        try check(unsafe sd_bus_message_close_container(message))
    }

    private static func code(_ type: Character) -> CChar { CChar(bitPattern: type.asciiValue ?? 0) }
}
