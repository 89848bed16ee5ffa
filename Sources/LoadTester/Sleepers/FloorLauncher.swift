import CFloors
import Glibc

/// The floor of relaunching: connects like so many phones, and starts the phone's program for each call.
///
/// Inherits the end of a pipe as descriptor 4 and nothing as descriptor 3, which becomes the programs'.
enum FloorLauncher {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 4, let port = UInt16(arguments[0]), let first = UInt64(arguments[1]),
            let count = UInt64(arguments[2])
        else { throw LoadError.missing("arguments") }
        _ = cfloors_raise_descriptor_limit()
        cfloors_ignore_children()
        let sockets = try (first..<first + count).map { try PhoneLine.connect(to: port, as: $0) }
        let code = cfloors_spawner(sockets, sockets.count, arguments[3], 4)
        guard code == 0 || code == EINTR else { throw LoadError("the floor's launcher", code: code) }
    }
}
