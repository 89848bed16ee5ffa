/// A stored property of this type has its struct passed by address.
///
/// The compiler loads other structs, however large, and stores them again for each call of a method that does not
/// change them: 3,000 bytes for each question to the core. A struct that may contain any value has no fixed set of
/// fields to load, and is left where it is.
struct PassedByAddress: Sendable, Equatable {
    private let value: (any Sendable)? = nil

    static func == (_: PassedByAddress, _: PassedByAddress) -> Bool { true }
}
