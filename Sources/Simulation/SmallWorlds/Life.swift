package import NightbellCore

/// Some steps of a few clients, by the rules of one subject.
package protocol Life {
    var world: SmallWorld { get set }

    /// The mistakes of the core that break its rules.
    static var mutations: [Mutation] { get }

    /// - Parameter narrator: told each event and action.
    init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?)

    /// The facts that any supervisor is told at once.
    var initialFacts: [Event] { get }
    /// Something happens by chance.
    mutating func step()
    /// The supervisor is about to be told this.
    mutating func learn(_ fact: Fact)
    /// The supervisor has decided on these events: see `world.actions`.
    ///
    /// - Returns: whether it lives on to do it.
    mutating func survives(deciding batch: [Event]) -> Bool
    /// This is about to be done to a client.
    mutating func note(_ action: Action, of index: Int)
    /// A client has registered, or come back.
    mutating func begin(_ index: Int)
    mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int)
    /// All actions of a turn are done; the clients hear of their wakes afterwards.
    mutating func settle()
    /// A client is told of a wake.
    ///
    /// - Returns: whether it handles it. It fails otherwise.
    mutating func take(_ wake: Wake, _ index: Int) -> Bool
    /// Whether it finishes a wake that it handles later: then the life has to say so.
    mutating func delays(_ wake: Wake, _ index: Int) -> Bool
    /// A process has ended.
    mutating func end(_ index: Int)
    /// It is no client any more.
    mutating func leave(_ index: Int)
    /// A turn is over: the rest of the machine follows.
    mutating func follow()
    /// All has been done that follows from some events.
    mutating func check()
    /// The supervisor is dead. `world.events` has those that it had still to be told of.
    mutating func loseSupervisor()
}

extension Life {
    package var initialFacts: [Event] { [] }
    package mutating func learn(_ fact: Fact) {}
    package mutating func survives(deciding batch: [Event]) -> Bool { true }
    package mutating func note(_ action: Action, of index: Int) {}
    package mutating func begin(_ index: Int) {}
    package mutating func delays(_ wake: Wake, _ index: Int) -> Bool { false }
    package mutating func end(_ index: Int) {}
    package mutating func leave(_ index: Int) {}
    package mutating func settle() {}
    package mutating func follow() {}
    package mutating func check() {}
    package mutating func loseSupervisor() {}
}
