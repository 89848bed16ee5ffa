import Logging
import NightbellCore

/// All configuration keys, in the order in which they are documented.
package enum Keys {
    package static let all: [Key] =
        paths + keeper + budgets + keepAlive + fetch + offload + suspension + wakes + launches
        + memoryPressure + machine + gateway + quotas
        + rest

    /// The key of that name, or nil.
    package static func named(_ name: String) -> Key? { all.first { $0.name == name } }

    private static let paths: [Key] = [
        .file("socket", \.socket, limit: 107, "The path of the control socket."),
        .permissions(
            "socketMode", \.socketMode,
            "Permission bits of the control socket. The permissions of a caller depend on its uid."),
        .file(
            "runtimeDirectory", \.runtimeDirectory, limit: 4_000,
            "The directory for data that the next run needs, such as the list of stopped processes."),
        .file(
            "manifestDirectory", \.manifestDirectory, limit: 4_000, mayBeEmpty: true,
            "The directory of the manifests (*.yaml) that declare clients; nothing: none."),
        .file(
            "stateDirectory", \.stateDirectory, limit: 4_000, mayBeEmpty: true,
            "The directory that keeps the owners of identifiers and quit clients over a restart; nothing: none."
        ),
        .choice("logLevel", \.logLevel, "The log level."),
    ]

    private static let keeper: [Key] = [
        .choice(
            "keeper.use", \.keeper,
            "Whether a keeper holds all sockets, so that the supervisor can die and be replaced."),
        .count(
            "keeper.crashLimit", \.crashLimit, 1...1_000_000,
            "Crashes in a row after which no client stays suspended until a worker stays up."),
        .duration(
            "keeper.crashPeriod", \.crashPeriod, atLeast: .milliseconds(10),
            "The period of these crashes. A worker that stays up for crashPeriod / crashLimit resets the count."
        ),
    ]

    private static let budgets: [Key] = [
        .duration(
            "budgets.enteringBackground", \.supervision.budgets.enteringBackground,
            atLeast: .milliseconds(10),
            "The time for a client to enter the background."),
        .duration(
            "budgets.prepareToSuspend", \.supervision.budgets.prepareToSuspend, atLeast: .milliseconds(10),
            "The time for a client to prepare; afterwards it is suspended by force."),
        .duration(
            "budgets.wake", \.supervision.budgets.wake, atLeast: .milliseconds(10),
            "The time for a woken client, keep-alive handlers included."),
        .duration(
            "budgets.backgroundTasks", \.supervision.budgets.backgroundTasks, atLeast: .milliseconds(10),
            "The time for all background tasks of one client together."),
        .duration(
            "budgets.expirationNotice", \.supervision.budgets.expirationNotice,
            "The client is notified this long before its background time ends."),
        .duration(
            "budgets.termination", \.supervision.budgets.termination,
            "From the notice of termination to the kill."),
        .duration(
            "budgets.fetch", \.supervision.budgets.fetch, atLeast: .milliseconds(10),
            "The time for a fetch; a client that has not completed it by then is terminated."),
        .duration(
            "budgets.push", \.supervision.budgets.push, atLeast: .milliseconds(10),
            "The time to handle pushes; a client that has not completed that by then is terminated."),
        .duration(
            "budgets.mediaLapse", \.supervision.budgets.mediaLapse,
            "How long media counts as playing after its last sign."),
        .duration(
            "budgets.mediaHold", \.supervision.budgets.mediaHold,
            "How long media that played counts as playing while nothing is known about it."),
    ]

    private static let keepAlive: [Key] = [
        .duration(
            "keepAlive.minimumTimeout", \.supervision.keepAlive.minimumTimeout, atLeast: .milliseconds(10),
            "The shortest keep-alive timeout that is accepted."),
        .share(
            "keepAlive.tolerance", \.supervision.keepAlive.tolerance,
            "The width of the window, as a share of the timeout; the window ends with the timeout."),
        .duration(
            "keepAlive.lead", \.supervision.keepAlive.lead,
            "The timer aims this long before the end of a window, so that scheduling does not make it late."),
    ]

    private static let fetch: [Key] = [
        .duration(
            "fetch.minimumInterval", \.supervision.fetch.minimumInterval, atLeast: .milliseconds(10),
            "The shortest pause between two fetches of a client, and after its time in the foreground."),
        .count(
            "fetch.perDay", \.supervision.fetch.perDay, 1...255,
            "The maximum number of fetches of a client in a day; one with a bad score has fewer."),
        .count(
            "fetch.concurrent", \.supervision.fetch.concurrent, 1...1_000,
            "The maximum number of fetches at a time; of one user, half of that."),
        .duration(
            "fetch.slack", \.supervision.fetch.slack,
            "How much earlier than planned a fetch may begin, because the machine is awake."),
        .duration(
            "fetch.fresh", \.supervision.fetch.fresh, atLeast: .milliseconds(10),
            "How long data counts as fresh after a fetch."),
        .count(
            "fetch.processorPressure", \.supervision.fetch.processorPressure, 1...101,
            "Fetches wait while processes wait for a processor this share of the time, in percent; 101: never."
        ),
        .count(
            "fetch.memoryPressure", \.supervision.fetch.memoryPressure, 1...101,
            "Fetches wait while processes wait for memory this share of the time, in percent; 101: never."),
    ]

    private static let offload: [Key] = [
        .count(
            "offload.noiseBurst", \.supervision.offload.noiseBurst, 1...1_000,
            "Size of the per-socket token bucket for pings absorbed while the owner sleeps; more wake it."),
        .duration(
            "offload.noiseInterval", \.supervision.offload.noiseInterval, atLeast: .milliseconds(1),
            "The time in which this token bucket gains one token."),
        .duration(
            "offload.partialTimeout", \.supervision.offload.partialTimeout, atLeast: .milliseconds(1),
            "How long an incomplete ping may wait for its rest before the owner is woken."),
    ]

    private static let suspension: [Key] = [
        .choice(
            "suspension.method", \.suspensionMethod,
            "How clients are stopped: by the cgroup v2 freezer, by SIGSTOP, not at all, or the best that works."
        ),
        .cgroup(
            "suspension.cgroupParent", \.cgroupParent, limit: 2_000,
            "The cgroup below which all clients are put, such as /nightbell.slice; nothing: below the one that each is in."
        ),
        .duration(
            "suspension.confirmation", \.supervision.suspension.confirmation, atLeast: .milliseconds(10),
            "The time for the kernel to confirm that a client is stopped."),
        .duration(
            "suspension.retry", \.supervision.suspension.retry, atLeast: .milliseconds(1),
            "The back-off after a suspension that failed or was not idle; doubles each time in a row."),
        .duration(
            "suspension.retryMaximum", \.supervision.suspension.retryMaximum, atLeast: .milliseconds(1),
            "The maximum of this back-off."),
    ]

    private static let wakes: [Key] = [
        .duration(
            "wakes.linger", \.supervision.wakes.linger,
            "How long a client stays awake after it has handled a wake."),
        .duration(
            "wakes.lingerMaximum", \.supervision.wakes.lingerMaximum,
            "The longest linger; it doubles with each wake over the limit."),
        .count(
            "wakes.limit", \.supervision.wakes.limit, 1...1_000_000,
            "The limit of wakes of one client in a period."),
        .count(
            "wakes.limitPerUser", \.supervision.wakes.limitPerUser, 1...1_000_000_000,
            "The limit of wakes of all clients of one uid in a period."),
        .duration(
            "wakes.period", \.supervision.wakes.period, atLeast: .seconds(1), "The period of these limits."),
    ]

    private static let launches: [Key] = [
        .duration(
            "launches.budget", \.supervision.launches.budget, atLeast: .milliseconds(10),
            "The time for a launched client to send Hello, and then to set up its wake sources."),
        .count(
            "launches.concurrent", \.supervision.launches.concurrent, 1...1_000_000,
            "Concurrent launches that are waited for. Administrators have the same number in addition."
        ),
        .count(
            "launches.concurrentPerUser", \.supervision.launches.concurrentPerUser, 1...1_000_000,
            "The limit of these launches for one uid."),
        .count(
            "launches.concurrentInBackground", \.supervision.launches.concurrentInBackground, 1...1_000_000,
            "Other concurrent launches: after crashes, and the same number at the start."),
        .count(
            "launches.concurrentInBackgroundPerUser",
            \.supervision.launches.concurrentInBackgroundPerUser, 1...1_000_000,
            "The limit of these launches for one uid."),
        .count(
            "launches.relaunches", \.supervision.launches.relaunches, 0...255,
            "How often in a row a crashing client is relaunched."),
        .duration(
            "launches.settled", \.supervision.launches.settled,
            "A client that has run this long counts as launched, which resets its crash count."),
        .duration(
            "launches.retry", \.supervision.launches.retry,
            "The back-off before a client that crashed is relaunched; doubles each time in a row."),
        .duration(
            "launches.retryMaximum", \.supervision.launches.retryMaximum, "The maximum of this back-off."),
    ]

    private static let memoryPressure: [Key] = [
        .file(
            "memoryPressure.file", \.pressureFile, limit: 4_000, mayBeEmpty: true,
            "The kernel's pressure file: of the machine, or memory.pressure of a cgroup; nothing: not watched. "
                + "The machine's counts while less than a fifth of its memory is available."
        ),
        .choice(
            "memoryPressure.share", \.pressureShare,
            "The stall that counts: of some processes, or of all at the same time."),
        .duration(
            "memoryPressure.stall", \.pressureStall, atLeast: .milliseconds(1),
            "Memory is short when this much time is lost within the window."),
        .duration(
            "memoryPressure.window", \.pressureWindow, atLeast: .milliseconds(500),
            "The window: at most 10s, and whole multiples of 2s without CAP_SYS_RESOURCE."),
        .count(
            "memoryPressure.endsAtOnce", \.supervision.memoryPressure.endsAtOnce, 0...1_000_000,
            "The number of suspended clients ended each time, the largest first."),
        .duration(
            "memoryPressure.pause", \.supervision.memoryPressure.pause,
            "For this long only launches that are waited for take place."),
        .choice(
            "memoryPressure.pageOut", \.pageOut,
            "Whether the memory of a suspended client is written to swap at once."),
    ]

    private static let machine: [Key] = [
        .choice(
            "monitor", \.monitor,
            "Whether nightbell-monitor is started when a client needs to know about the machine: its network, its sleep."
        ),
        .file(
            "monitorProgram", \.monitorProgram, limit: 4_000, mayBeEmpty: true,
            "The program nightbell-monitor; nothing: the one beside nightbelld."),
        .choice(
            "transfers", \.transfers,
            "Whether nightbell-transfer is started for users with clients that download or upload files; it needs a stateDirectory."
        ),
        .file(
            "transferProgram", \.transferProgram, limit: 4_000, mayBeEmpty: true,
            "The program nightbell-transfer; nothing: the one beside nightbelld."),
        .count(
            "transfer.parallel", \.transfer.parallel, 1...256,
            "Transfers of one user that run at the same time."),
        .count(
            "transfer.parallelPerHost", \.transfer.parallelPerHost, 1...256, "Of those, with the same host."),
        .count(
            "transfer.diskBytes", \.transfer.diskBytes, 1...1_125_899_906_842_624,
            "The size of all files of one user's transfers together; a transfer that finds no room waits."),
        .duration(
            "transfer.lifetime", \.transfer.lifetime, atLeast: .seconds(1),
            "A transfer that is not finished after this is given up."),
        .duration(
            "transfer.orphans", \.transfer.orphans, atLeast: .seconds(1),
            "How long the results of a client that does not come are kept; time while the machine is off does not count."
        ),
        .duration(
            "discretionary.patience", \.supervision.discretionary.patience,
            "How long a client that sleeps may wait for the end of discretionary transfers, so that it is told with another wake."
        ),
        .duration(
            "sleep.horizon", \.supervision.sleep.horizon,
            "Keep-alive handlers that would be due within this time run before the machine sleeps."),
        .duration(
            "sleep.delay", \.supervision.sleep.delay,
            "How long the machine's sleep is delayed for that at most; logind permits InhibitDelayMaxSec (5s)."
        ),
        .count(
            "location.significantDistance", \.supervision.location.significantDistance, 10...1_000_000,
            "A significant change of the location is this many metres from where the client was last told it is."
        ),
        .duration(
            "location.significantInterval", \.supervision.location.significantInterval,
            "The shortest time between two significant changes of the location that a client is told of."),
    ]

    private static let gateway: [Key] = [
        .user(
            "gateway.user", \.gatewayUser,
            "The user that nightbell-gateway runs as, by name or number; nothing: there is no gateway."),
        .choice(
            "gateway.rights", \.gatewayRights,
            "The rights of that user over all clients: to see them (read), or also to wake, suspend, quit and launch them and to tell of pushes (wake)."
        ),
        .file(
            "gateway.pushSocket", \.pushSocket, limit: 107, mayBeEmpty: true,
            "Where clients reach the push service, which nightbell-gateway is with --push; nothing: nowhere."),
        .count(
            "push.perHour", \.supervision.push.perHour, 1...3_600,
            "How often a client in the background is told of pushes within an hour; the others wait, and are told together."
        ),
        .duration(
            "push.retry", \.supervision.push.retry, atLeast: .milliseconds(10),
            "A client that has not handled its pushes is told again after this."),
    ]

    private static let quotas: [Key] = [
        .count(
            "quotas.clientsPerUser", \.supervision.quotas.clientsPerUser, 1...1_000_000, "Clients of one uid."
        ),
        .count(
            "quotas.socketsPerClient", \.supervision.quotas.socketsPerClient, 1...1_000_000,
            "Sockets of one client."),
        .count(
            "quotas.socketsPerUser", \.supervision.quotas.socketsPerUser, 1...1_000_000, "Sockets of one uid."
        ),
        .count(
            "quotas.backgroundTasksPerClient", \.supervision.quotas.backgroundTasksPerClient, 1...1_024,
            "Open background tasks of one client."),
        .count(
            "quotas.observationsPerClient", \.supervision.quotas.observationsPerClient, 0...128,
            "Observations of one client."),
        .count(
            "quotas.observationsPerUser", \.supervision.quotas.observationsPerUser, 0...100_000,
            "Observations of one uid. They may name 32 devices or characteristics; fewer, but some, while other uids "
                + "name many."),
        .count(
            "quotas.notificationsPerClient", \.supervision.quotas.notificationsPerClient, 0...1_000,
            "Notifications of one client that are still to be shown: the soonest are kept, a repeating one counts once."
        ),
        .count(
            "quotas.notificationsPerUser", \.supervision.quotas.notificationsPerUser, 0...100_000,
            "Notifications of one uid, with those that are shown."),
        .count(
            "quotas.stateBytesPerClient", \.supervision.quotas.stateBytesPerClient, 0...122_880,
            "The size of the state that a client may save for its next process."),
        .count(
            "quotas.stateBytesPerUser", \.supervision.quotas.stateBytesPerUser, 0...1_073_741_824,
            "The size of the saved state of all clients of one uid together."),
    ]

    private static let rest: [Key] = [
        .duration(
            "helloTimeout", \.helloTimeout, atLeast: .milliseconds(10),
            "How long a new control connection may stay silent before it is closed."),
        .count(
            "connectionsPerUser", \.connectionsPerUser, 1...1_000_000,
            "Control connections of one uid, clients and administration together."),
        .count(
            "messagesPerTurn", \.messagesPerTurn, 1...65_536,
            "Messages of one connection handled per turn."),
        .count(
            "outgoingBytesPerConnection", \.outgoingBytesPerConnection, 131_072...1_073_741_824,
            "Bytes queued for a connection that does not read before it is closed."),
    ]
}
