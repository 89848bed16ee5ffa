/// Deliberate mistakes, with which the simulator proves that it finds mistakes.
///
/// They exist in debug builds only, which define `NIGHTBELL_MUTATIONS` (see Package.swift): a release build asks
/// no question at the places below, keeps no room for the answer, and cannot be told to be wrong.
package enum Mutation: String, Sendable, CaseIterable {
    case placeholder

    package static var areCompiledIn: Bool {
        #if NIGHTBELL_MUTATIONS
            true
        #else
            false
        #endif
    }
}

extension Supervision {
    /// A core that makes this mistake.
    package init(settings: Settings, mutation: Mutation?) {
        self.init(settings: settings)
        #if NIGHTBELL_MUTATIONS
            self.mutation = mutation
        #else
            precondition(mutation == nil, "mutations are compiled into debug builds only")
        #endif
    }

    #if NIGHTBELL_MUTATIONS
        func mutated(_ mutation: Mutation) -> Bool { self.mutation == mutation }
    #else
        @inline(__always)
        func mutated(_: Mutation) -> Bool { false }
    #endif
}
