/// Deliberate mistakes, with which the simulator proves that it finds mistakes.
///
/// They exist in debug builds only, which define `NIGHTBELL_MUTATIONS` (see Package.swift): a release build asks
/// no question at the places below, keeps no room for the answer, and cannot be told to be wrong.
package enum Mutation: String, Sendable, CaseIterable {
    /// Only the first of a client's sockets is watched while it sleeps.
    case armsOneSocket
    /// What fires between the request to freeze and the kernel's confirmation is taken for old news.
    case ignoresFiringWhileFreezing
    /// The kernel's answer to an earlier attempt counts for this one.
    case confirmsAnyEpoch
    /// A suspension that failed is given up without a thaw.
    case leavesFrozenOnCancel
    /// A client can finish a wake before it is told of it.
    case believesUntoldWakeDone
    /// Overrun wakes are not recorded.
    case hidesWakeOverruns
    /// An answer after the end of its budget counts if the timer was not served yet.
    case acceptsLateAnswers
    /// Any client can release any other's socket.
    case releasesForAnybody
    /// A socket that was released after it fired is told of.
    case tellsOfReleased
    /// The number of sockets of a client has no limit.
    case exceedsQuota
    /// An identifier that was used once never becomes another owner's.
    case keepsIdentifiersForEver
    /// The sockets of a client that ended are not all closed.
    case leaksOnExit
    /// A socket is watched again after its end was told, and fires for ever.
    case watchesAfterEnd
    /// A socket is not watched at all after its end was told, though bytes are left unread before it.
    case forgetsBytesPastEnd
    /// A client that sleeps when the supervisor stops sleeps on.
    case leavesAsleepOnStop
    /// Clients are thawed in the order of a hash table.
    case stopsInHashOrder
    /// Background tasks and media hold nothing off.
    case suspendsInSpiteOfTasks
    /// Each new background task brings the whole time anew.
    case restartsTaskClock
    /// A program that does not say Hello in time is ended, also if it never has.
    case endsSilentPrograms
    /// No client ever exceeds its rate limit of wakes.
    case permitsAnyWakes
    /// Budgets are charged for the time that the machine sleeps …
    case chargesSleep
    /// … or keep-alive windows wait for it to wake.
    case ignoresSleep
    /// The timer is set to budgets only while there are any.
    case forgetsKeepAliveTimer
    /// A client inside its keep-alive window does not run along when others are woken.
    case sleepsThroughWindow
    /// A client is suspended as soon as it has finished a wake.
    case forgetsToLinger
    /// A woken client has three times its budget, and is told so.
    case lengthensWakes
    /// No client is let into the foreground.
    case refusesForeground
    /// A client that asks for its remaining time is told that it is unlimited …
    case promisesEndlessTime
    /// … or that none has been used.
    case promisesFullTime
    /// No background task is ever granted.
    case grantsNoTasks
    /// The warning that the time of background tasks ends comes an hour early …
    case warnsEarly
    /// … or not at all.
    case forgetsToWarn
    /// Ending a task that is not held succeeds as if it were.
    case endsAnyTask
    /// An administrator is told that a client cannot be suspended when nothing is against it.
    case refusesSuspension
    /// Pings are dealt with for sockets of owners that have not vouched for them.
    case offloadsUnasked
    /// Pings go on being sent when the owner is awake.
    case pingsWhileAwake
    /// A missing answer goes unnoticed.
    case forgetsAnswers
    /// A peer may ping as much as it likes.
    case permitsAnyNoise
    /// The beginning of a message that an owner left unread is never looked at again.
    case forgetsBeginnings
    /// Sockets that were not handed over to survive do.
    case keepsAllSockets
    /// The sockets of a client that ended are not watched.
    case parksUnwatched
    /// A client that ends badly is launched again for ever.
    case relaunchesForEver
    /// A client that ended well is launched again.
    case relaunchesAfterSuccess
    /// A client that was quit by its user can come back.
    case relaunchesQuit
    /// A client that ended badly and must be reachable is not launched again.
    case neverRelaunches
    /// The pause before a relaunch is left out.
    case relaunchesAtOnce
    /// A new process is not told what fired before it was there.
    case forgetsWhatLaunched
    /// All clients are launched at once.
    case launchesAll
    /// One user's launches may take all the room that there is.
    case launchesBeyondShares
    /// A launch that is over does not make room for the next one.
    case keepsLaunchSlots
    /// A client that fails at its start gets its state back again and again.
    case keepsBadState
    /// When memory is short, the smallest are ended first.
    case endsSmallest
    /// A client that memory pressure has ended is not launched again.
    case leavesRelieved
    /// A launched client is suspended before anything could wake it.
    case suspendsInSetUp
    /// A client that asked to be ended instead of being suspended is suspended.
    case suspendsHibernators
    /// A request that is made again is carried out again.
    case repeatsRequests
    /// After a restart: a client that sleeps is left asleep with its sockets unwatched …
    case restoresUnarmed
    /// … a client that was being stopped is taken for asleep though it runs …
    case restoresBelieving
    /// … a wake that may not have been told is not told …
    case restoresWithoutWake
    /// … the pings of sleeping clients are not resumed …
    case restoresWithoutPings
    /// … names are given again that were given before …
    case restoresNames
    /// … background tasks are forgotten …
    case restoresWithoutTasks
    /// … or have all their time again …
    case restoresTaskTime
    /// … a client in line to be launched is forgotten there …
    case restoresUnqueued
    /// … a client that was launched and may not have been welcomed is taken for welcomed …
    case restoresWelcome
    /// … and what did not survive its process does.
    case restoresAllSockets

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
