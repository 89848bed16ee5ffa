/// Deliberate mistakes that the simulator must find.
///
/// They exist in debug builds, which define `NIGHTBELL_MUTATIONS` (see Package.swift), and in the build of
/// `scripts/simulate`. Any other release build contains neither the checks nor the stored mutation.
package enum Mutation: String, Sendable, CaseIterable {
    /// Only the first of a client's sockets is watched while it sleeps.
    case armsOneSocket
    /// A socket that fires between the request to freeze and the kernel's confirmation is ignored.
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
    case releasesForAnyClient
    /// A socket that was released after it fired is reported.
    case tellsOfReleased
    /// A client parks sockets without a mode for them.
    case parksUndeclared
    /// The number of sockets of a client has no limit.
    case exceedsQuota
    /// An identifier that was used once never gets another owner.
    case keepsIdentifiersForEver
    /// The sockets of a client that ended are not all closed.
    case leaksOnExit
    /// A socket is watched again after its end was reported, and never stops firing.
    case watchesAfterEnd
    /// A socket is not watched at all after its end was reported, though bytes are left unread before it.
    case forgetsBytesPastEnd
    /// A client that is suspended when the supervisor stops stays suspended.
    case leavesAsleepOnStop
    /// Clients are thawed in the order of a hash table.
    case stopsInHashOrder
    /// Background tasks and media do not hold off suspension.
    case suspendsInSpiteOfTasks
    /// Each new background task restarts the whole time.
    case restartsTaskClock
    /// A program that does not say Hello in time is killed, even if it never has.
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
    /// A woken client gets three times its budget, and is told so.
    case lengthensWakes
    /// No client is permitted to enter the foreground.
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
    /// An administrator is told that a client cannot be suspended although nothing prevents it.
    case refusesSuspension
    /// Pings are handled for sockets of owners that have not vouched for them.
    case offloadsUnasked
    /// Pings are still sent while the owner is awake.
    case pingsWhileAwake
    /// A missing answer goes unnoticed.
    case forgetsAnswers
    /// A peer may ping without limit.
    case permitsAnyNoise
    /// A partial message that an owner left unread is never inspected again.
    case forgetsBeginnings
    /// Sockets that were not handed over to survive their process survive it.
    case keepsAllSockets
    /// The sockets of a client that ended are not watched.
    case parksUnwatched
    /// A client that fails is launched again for ever.
    case relaunchesForEver
    /// A launch for which the supervisor lacks descriptors counts as a crash.
    case blamesClients
    /// A client that succeeded is launched again.
    case relaunchesAfterSuccess
    /// A client that was quit by its user can be launched again.
    case relaunchesQuit
    /// A client that failed and must be reachable is not launched again.
    case neverRelaunches
    /// The pause before a relaunch is left out.
    case relaunchesAtOnce
    /// A new process is not told which sockets fired before it existed.
    case forgetsWhatLaunched
    /// All clients are launched at once.
    case launchesAll
    /// One user's launches may use the whole launch limit.
    case launchesBeyondShares
    /// A finished launch does not free its slot.
    case keepsLaunchSlots
    /// A client that fails at its start gets its state back again and again.
    case keepsBadState
    /// When memory is short, the smallest clients are terminated first.
    case endsSmallest
    /// A client that was terminated for memory pressure is not launched again.
    case leavesRelieved
    /// Launches that wait for memory do so as long as the pressure goes on.
    case waitsForMemoryForEver
    /// A launched client is suspended before anything could wake it.
    case suspendsInSetUp
    /// A client that asked to be terminated instead of suspended is suspended.
    case suspendsHibernators
    /// A client is fetched as often as possible, whatever interval it asked for.
    case ignoresFetchInterval
    /// A client in the foreground is fetched.
    case fetchesInForeground
    /// Fetches begin without a network.
    case fetchesOffline
    /// A client is suspended while it fetches.
    case suspendsWhileFetching
    /// A client that does not complete a fetch goes on.
    case permitsEndlessFetches
    /// The completion of a fetch that was never begun is accepted.
    case believesAnyFetch
    /// A client that has failed is not kept for its next fetch.
    case forgetsFetchers
    /// A client observes things without the mode for them …
    case observesUndeclared
    /// … or, with a service for the foreground, in the background.
    case observesInBackground
    /// Another client is woken as well when something observed happens …
    case tellsOtherObservers
    /// … or none is.
    case forgetsOccurrences
    /// A device of which nothing is known counts as absent.
    case takesUnknownForAbsent
    /// A client that has failed is not kept for what it observes.
    case forgetsObservers
    /// A client that was quit by its user keeps all its observations.
    case relaunchesQuitForAnything
    /// The end of a session's transfers is told again when it is reported again …
    case repeatsTransfers
    /// … or forgotten while its client has no process.
    case forgetsTransfers
    /// A sleeping client is woken at once for the end of transfers that could wait …
    case hurriesDiscretionaryTransfers
    /// … or not together with others.
    case holdsDiscretionaryTransfers
    /// Waiting pushes are told again when they are reported again …
    case repeatsPushes
    /// … more often in an hour than is configured …
    case ignoresPushLimit
    /// … or whatever their urgency is …
    case ignoresUrgency
    /// … or by a launch that was decided at a better moment.
    case launchesForPastMoments
    /// A client is suspended while it handles pushes …
    case suspendsDuringPushes
    /// … or not terminated when it takes too long for that.
    case permitsEndlessPushes
    /// Pushes that a client has failed to handle are not told again.
    case forgetsUnhandledPushes
    /// … nor those that took it too long in the foreground …
    case forgivesSlowPushesInUse
    /// … nor is its next process told of those that it has left.
    case tellsOneProcessOfPushes
    /// Any client that says so is believed to have handled pushes.
    case believesAnyPush
    /// A repeated request is carried out again.
    case repeatsRequests
    /// The reported end of a stream is not persisted …
    case persistsNoEnds
    /// … nor is a change of background tasks …
    case persistsNoTasks
    /// … nor the owner of an identifier that no client uses any more …
    case persistsNoOwners
    /// … nor that a sleeper's message is being read.
    case persistsNoReading
    /// After a restart: a suspended client stays suspended with its sockets unwatched …
    case restoresUnarmed
    /// … a client that was being frozen is taken for suspended though it runs …
    case restoresBelieving
    /// … a wake that may not have been delivered is not delivered …
    case restoresWithoutWake
    /// … the pings of suspended clients are not resumed …
    case restoresWithoutPings
    /// … names of clients and sockets are reused …
    case restoresNames
    /// … background tasks are forgotten …
    case restoresWithoutTasks
    /// … or get their whole time again …
    case restoresTaskTime
    /// … a client in the launch queue is missing from it …
    case restoresUnqueued
    /// … a client that was launched and may not have been welcomed is taken for welcomed …
    case restoresWelcome
    /// … sockets that do not survive their process are kept …
    case restoresAllSockets
    /// … the network of before is not known …
    case restoresWithoutNetwork
    /// … and clients that had yet to be told of another network are not told.
    case restoresWithoutInspection
    /// No client is told of another network.
    case ignoresNetworks
    /// No client's sockets are inspected after the machine has slept.
    case trustsPathsAfterSleep
    /// A client that was told of another network is told again and again.
    case owesNetworkForEver
    /// A client is not told which of its sockets cannot work any more …
    case forgetsLostPaths
    /// … or is told again and again.
    case repeatsLostPaths
    /// No keep-alive handler runs before the machine sleeps.
    case sleepsUnprepared
    /// The machine's sleep is delayed for as long as the machine permits.
    case delaysSleepForEver
    /// The machine may sleep while a client is being suspended.
    case sleepsWhileSuspending
    /// A client is launched before its user's home is there …
    case launchesLocked
    /// … or not once it is there.
    case forgetsUnlocked
    /// … fetches are forgotten …
    case restoresWithoutFetches
    /// … so are observations …
    case restoresWithoutObservations
    /// … or what was known of their subjects.
    case restoresUnknownObservations
    /// A notification that was cancelled is shown …
    case postsCancelledNotifications
    /// … or one that comes while no server is there is lost …
    case losesNotificationsWithoutServer
    /// … or a client in the foreground is not told, and it is shown …
    case showsInForeground
    /// … or of too many, the soonest is dropped …
    case dropsSoonestNotifications
    /// … or the clock is set, and times of the calendar stay where they were …
    case ignoresClockChanges
    /// … or daylight-saving time begins or ends unforeseen …
    case ignoresZoneChanges
    /// … or a delivery that was not finished is shown in the place of a later one …
    case showsReplacedDeliveries
    /// … or a restarted supervisor has forgotten them …
    case restoresWithoutNotifications
    /// … or has forgotten which of them are to be closed.
    case restoresWithoutCloses
    /// A client's word that it has media counts though PipeWire knows better.
    case believesClaims
    /// Media of which nothing is known counts as silent.
    case silencesUnknown
    /// Media that has ended keeps its client awake.
    case hearsOldMedia
    /// Media wakes a sleeping client.
    case wakesForMedia
    /// The media of one user keeps the clients of another one awake.
    case mixesSessions
    /// An unmodified client that is woken stays in the background, as if it could finish the wake …
    case budgetsUnmodified
    /// … and one that is wanted back stays frozen.
    case leavesUnmodifiedFrozen
    /// The pings of an unmodified program that runs are answered for it.
    case keepsOffloadsOfUnmodified
    /// An unmodified program is ended when memory is short.
    case endsUnmodified

    package static var areCompiledIn: Bool {
        #if NIGHTBELL_MUTATIONS
            true
        #else
            false
        #endif
    }
}

extension Supervision {
    /// Creates a core that makes this mistake.
    package init(settings: Settings, mutation: Mutation?) {
        self.init(settings: settings)
        #if NIGHTBELL_MUTATIONS
            self.mutation = mutation
        #else
            precondition(mutation == nil, "this build has no mutations")
        #endif
    }

    #if NIGHTBELL_MUTATIONS
        func mutated(_ mutation: Mutation) -> Bool { self.mutation == mutation }
    #else
        @inline(__always)
        func mutated(_: Mutation) -> Bool { false }
    #endif
}
