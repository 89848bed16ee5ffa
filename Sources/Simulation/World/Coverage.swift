/// The number of rare events, so that a quiet world is not taken for a safe one.
package struct Coverage: Sendable, Equatable {
    package var clients: UInt64 = 0
    package var events: UInt64 = 0
    package var actions: UInt64 = 0
    package var lives: UInt64 = 0
    package var clientCrashes: UInt64 = 0
    package var kills: UInt64 = 0
    package var resets: UInt64 = 0
    package var stalls: UInt64 = 0
    package var machineSleeps: UInt64 = 0
    package var refusals: UInt64 = 0
    package var parked: UInt64 = 0
    package var rejoined: UInt64 = 0
    package var takenOver: UInt64 = 0
    package var statesDropped: UInt64 = 0
    package var disowned: UInt64 = 0
    /// Deaths of the supervisor, and their consequences.
    package var deaths: UInt64 = 0
    package var repetitions: UInt64 = 0
    package var wakesToldAgain: UInt64 = 0
    /// Pings sent for sleeping clients, noise that was absorbed, floods of it, and missing answers.
    package var pings: UInt64 = 0
    package var noise: UInt64 = 0
    package var floods: UInt64 = 0
    package var unanswered: UInt64 = 0
    /// Pings that are handled for clients without a process, and sockets that had to be reported to such
    /// clients.
    package var parkedOffloads: UInt64 = 0
    package var foundForAbsent: UInt64 = 0
    /// Networks that clients had to be told of, sockets that cannot work over them, handlers that run before
    /// the machine sleeps, and launches that wait for a user.
    package var networks: UInt64 = 0
    package var pathsLost: UInt64 = 0
    package var runsBeforeSleep: UInt64 = 0
    package var launchesLocked: UInt64 = 0
    /// Reports of a client's media.
    package var streams: UInt64 = 0
    /// Of the small worlds.
    package var fetches: UInt64 = 0
    package var occurrences: UInt64 = 0
    package var pushes: UInt64 = 0
    package var notifications: UInt64 = 0

    package init() {}

    package static func += (left: inout Coverage, right: Coverage) {
        left.clients += right.clients
        left.events += right.events
        left.actions += right.actions
        left.lives += right.lives
        left.clientCrashes += right.clientCrashes
        left.kills += right.kills
        left.resets += right.resets
        left.stalls += right.stalls
        left.machineSleeps += right.machineSleeps
        left.refusals += right.refusals
        left.parked += right.parked
        left.rejoined += right.rejoined
        left.takenOver += right.takenOver
        left.statesDropped += right.statesDropped
        left.disowned += right.disowned
        left.deaths += right.deaths
        left.repetitions += right.repetitions
        left.wakesToldAgain += right.wakesToldAgain
        left.pings += right.pings
        left.noise += right.noise
        left.floods += right.floods
        left.unanswered += right.unanswered
        left.parkedOffloads += right.parkedOffloads
        left.foundForAbsent += right.foundForAbsent
        left.networks += right.networks
        left.pathsLost += right.pathsLost
        left.runsBeforeSleep += right.runsBeforeSleep
        left.launchesLocked += right.launchesLocked
        left.streams += right.streams
        left.fetches += right.fetches
        left.occurrences += right.occurrences
        left.pushes += right.pushes
        left.notifications += right.notifications
    }
}

/// A hash of all actions of a world. (FNV-1a over 64-bit words.)
package struct Digest: Sendable, Equatable {
    package private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    package init() {}

    package mutating func mix(_ word: UInt64) {
        value = (value ^ word) &* 0x100_0000_01b3
    }
}
