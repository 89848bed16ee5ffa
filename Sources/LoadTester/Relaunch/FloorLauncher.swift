import CFloors
import Glibc

/// The floor of relaunching: connects as many phones, and starts the phone's program for each call.
///
/// Inherits a lifetime pipe as descriptor 4. Descriptor 3 is free for the programs that it starts.
enum FloorLauncher {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 4, let first = Int(arguments[1]), let count = Int(arguments[2]) else {
            throw LoadError.missing("arguments")
        }
        let callPlan = CallPlan(argument: arguments[0])
        _ = cfloors_raise_descriptor_limit()
        cfloors_ignore_children()
        let sockets = try (first..<first + count).map { try Transport.tcp.connect(to: callPlan[$0], as: $0) }
        let code = cfloors_spawner(sockets, sockets.count, arguments[3], 4)
        guard code == 0 || code == EINTR else { throw LoadError("the floor's launcher", code: code) }
    }
}
