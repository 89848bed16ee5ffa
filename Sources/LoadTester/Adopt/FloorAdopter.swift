import CFloors
import Glibc

/// The floor of adoption and parking: takes descriptors and watches them, nothing else.
///
/// Inherits the shared memory as descriptor 3 and a socket as descriptor 4; ends with that socket.
enum FloorAdopter {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 1, let expected = Int(arguments[0]) else {
            throw LoadError.missing("arguments")
        }
        _ = cfloors_raise_descriptor_limit()
        let sharedMemory = try SharedMemory(inherited: 3, slots: 1)
        sharedMemory[0].stage = .running
        let code = cfloors_adopter(4, expected, sharedMemory.notedTime)
        guard code == 0 else { throw LoadError("the floor's adopter", code: code) }
    }
}
