import CFloors
import Glibc

/// The floor of adoption and parking: takes descriptors and watches them, and that is all.
///
/// Inherits the shared area as descriptor 3 and a socket as descriptor 4; ends with it.
enum FloorAdopter {
    static func run(_ arguments: [String]) throws {
        guard arguments.count == 1, let expected = Int(arguments[0]) else {
            throw LoadError.missing("arguments")
        }
        _ = cfloors_raise_descriptor_limit()
        let area = try SharedArea(inherited: 3, slots: 1)
        area[0].stage = .running
        let code = cfloors_adopter(4, expected, area.notedTime)
        guard code == 0 else { throw LoadError("the floor's adopter", code: code) }
    }
}
