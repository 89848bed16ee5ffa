import NightbellCore

/// The parameters of a world: the kinds of its clients, the faults of its kernel and network, and the
/// settings of the supervisor. Drawn once per world, so that some worlds are full of one kind of trouble and
/// others free of it.
struct WorldParameters: Sendable {
    var settings = Settings()
    /// The tolerance of keep-alive windows in whole percent, as in `settings`.
    var tolerance: Int64
    /// The largest number of clients at a time.
    var clients: Int
    /// Drawn from for each new client.
    var behaviours: [SimulatedClient.Behaviour]
    /// The freezes and checks out of 64 that fail …
    var freezesFailing: Int
    /// … the ones that are not confirmed yet …
    var freezesPending: Int
    /// … and the ones with a result that is reported seconds later.
    var sluggish: Int
    /// The largest delay with which the loop serves its timer. Less than the lead of keep-alive windows.
    var lateness: Duration
    /// The steps out of 64 before which the whole machine stands still for seconds …
    var stalls: Int
    /// … and those before which it sleeps, for seconds or hours.
    var machineSleeps: Int
    /// The steps out of 32 before which a monitor reports the media of a user.
    var media: Int
    /// Weights of spontaneous events: traffic, requests, administrators.
    var traffic: Int
    var requests: Int
    var commands: Int

    /// Draws small numbers, so that every limit is reached within minutes of the world's time.
    init(_ random: inout SplitMix64) {
        clients = 2 + random.below(9)
        let all = SimulatedClient.Behaviour.allCases
        // Half the worlds have clients of all kinds, the others one or two kinds besides the well-behaved.
        behaviours = random.once(in: 2) ? all + [.wellBehaved, .wellBehaved, .slow] : [.wellBehaved]
        for _ in 0..<2 { behaviours.append(all[random.below(all.count)]) }
        freezesFailing = [0, 0, 4, 8, 32][random.below(5)]
        freezesPending = [0, 8, 24, 32][random.below(4)]
        sluggish = [0, 0, 4, 32][random.below(4)]
        stalls = random.once(in: 8) ? 1 : 0
        traffic = [1, 2, 4, 8][random.below(4)]
        requests = [1, 2, 4, 12][random.below(4)]
        commands = [0, 0, 1, 2][random.below(4)]
        machineSleeps = random.once(in: 3) ? 1 : 0
        media = [0, 0, 1, 4][random.below(4)]
        tolerance = Int64(random.below(4)) * 10

        settings.budgets.enteringBackground = .milliseconds(500 + random.below(4_500))
        settings.budgets.prepareToSuspend = .milliseconds(500 + random.below(4_500))
        settings.budgets.wake = .milliseconds(1_000 + random.below(9_000))
        settings.budgets.backgroundTasks = .seconds(10 + random.below(30))
        settings.budgets.mediaHold = .seconds(5 + random.below(25))
        settings.keepAlive.minimumTimeout = .seconds(2)
        settings.keepAlive.tolerance = Double(tolerance) / 100
        settings.keepAlive.lead = .milliseconds(50 + random.below(300))
        lateness = settings.keepAlive.lead - .milliseconds(50)
        settings.offload.noiseBurst = 1 + random.below(8)
        settings.offload.noiseInterval = .milliseconds(100 + random.below(10_000))
        settings.offload.partialTimeout = .milliseconds(100 + random.below(5_000))
        settings.suspension.confirmation = .milliseconds(50 + random.below(950))
        settings.suspension.retry = .milliseconds(10 + random.below(240))
        settings.suspension.retryMaximum = .seconds(1 + random.below(10))
        settings.wakes.linger = .milliseconds(10 + random.below(490))
        settings.wakes.lingerMaximum = .seconds(1 + random.below(8))
        settings.wakes.limit = 2 + random.below(8)
        settings.wakes.limitPerUser = 10 + random.below(60)
        settings.wakes.period = .seconds(10 + random.below(60))
        settings.sleep.horizon = .seconds(random.below(60))
        settings.sleep.delay = .milliseconds(500 + random.below(3_500))
        settings.launches.budget = .milliseconds(200 + random.below(5_000))
        settings.launches.concurrent = 1 + random.below(3)
        settings.launches.concurrentInBackground = 1 + random.below(2)
        settings.launches.concurrentPerUser = 1 + random.below(3)
        settings.launches.concurrentInBackgroundPerUser = 1 + random.below(2)
        settings.launches.relaunches = random.below(4)
        settings.launches.settled = .seconds(1 + random.below(20))
        settings.launches.retry = .milliseconds(10 + random.below(500))
        settings.launches.retryMaximum = .seconds(1 + random.below(4))
        settings.administrator = random.once(in: 4) ? 1 : 0
        settings.memoryPressure.endsAtOnce = 1 + random.below(3)
        settings.memoryPressure.pause = .seconds(1 + random.below(20))
        settings.quotas.stateBytesPerClient = 100 + random.below(900)
        settings.quotas.stateBytesPerUser = 100 + random.below(2_000)
        settings.quotas.clientsPerUser = 1 + random.below(5)
        settings.quotas.socketsPerClient = 3 + random.below(8)
        settings.quotas.socketsPerUser = 6 + random.below(20)
        settings.quotas.backgroundTasksPerClient = 1 + random.below(5)
    }
}
