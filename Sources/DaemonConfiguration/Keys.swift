import Logging
import NightbellCore

/// All configuration keys, in the order in which they are documented.
package enum Keys {
    package static let all: [Key] =
        paths + keeper + budgets + keepAlive + offload + suspension + wakes + launches + memoryPressure
        + quotas
        + rest

    /// Names the key, or nil if there is none of that name.
    package static func named(_ name: String) -> Key? { all.first { $0.name == name } }

    private static let paths: [Key] = [
        .file("socket", \.socket, limit: 107, "Where the control socket is."),
        .permissions(
            "socketMode", \.socketMode,
            "Permission bits of the control socket. What a caller may do is decided by its uid."),
        .file(
            "runtimeDirectory", \.runtimeDirectory, limit: 4_000,
            "What the next run must know is kept here, such as which processes are stopped."),
        .file(
            "manifestDirectory", \.manifestDirectory, limit: 4_000, mayBeEmpty: true,
            "Clients are declared here, in files *.yaml; nothing: nowhere."),
        .file(
            "stateDirectory", \.stateDirectory, limit: 4_000, mayBeEmpty: true,
            "Whom identifiers belong to, and which clients were quit, is kept here beyond a restart; nothing: nowhere."
        ),
        .choice("logLevel", \.logLevel, "What is logged."),
    ]

    private static let keeper: [Key] = [
        .choice(
            "keeper.use", \.keeper,
            "Whether a keeper holds everybody's sockets, so that the supervisor can die and be replaced."),
        .count(
            "keeper.crashLimit", \.crashLimit, 1...1_000_000,
            "Workers that die so often in a row leave nobody suspended until one of them lives."),
        .duration(
            "keeper.crashPeriod", \.crashPeriod, atLeast: .milliseconds(10),
            "Within this time; who serves for its share of it is none of a row."),
    ]

    private static let budgets: [Key] = [
        .duration(
            "budgets.enteringBackground", \.supervision.budgets.enteringBackground,
            atLeast: .milliseconds(10),
            "What a client may take to enter the background."),
        .duration(
            "budgets.prepareToSuspend", \.supervision.budgets.prepareToSuspend, atLeast: .milliseconds(10),
            "What a client may take to get ready; afterwards it is suspended all the same."),
        .duration(
            "budgets.wake", \.supervision.budgets.wake, atLeast: .milliseconds(10),
            "What a woken client may take, keep-alive handlers included."),
        .duration(
            "budgets.backgroundTasks", \.supervision.budgets.backgroundTasks, atLeast: .milliseconds(10),
            "What all background tasks of one client may take together."),
        .duration(
            "budgets.expirationNotice", \.supervision.budgets.expirationNotice,
            "How long before the end of the background time its holder is told."),
        .duration(
            "budgets.termination", \.supervision.budgets.termination,
            "From the notice of termination to the kill."),
        .duration(
            "budgets.mediaLapse", \.supervision.budgets.mediaLapse,
            "How long media counts as playing after its last sign."),
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

    private static let offload: [Key] = [
        .count(
            "offload.noiseBurst", \.supervision.offload.noiseBurst, 1...1_000,
            "So many pings of a peer in a row are dealt with while their owner sleeps; more wake it …"),
        .duration(
            "offload.noiseInterval", \.supervision.offload.noiseInterval, atLeast: .milliseconds(1),
            "… unless there is at least this time between them."),
        .duration(
            "offload.partialTimeout", \.supervision.offload.partialTimeout, atLeast: .milliseconds(1),
            "How long the rest of what begins like a ping may take, before its owner is woken."),
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
            "How long the kernel has to confirm that a client is stopped."),
        .duration(
            "suspension.retry", \.supervision.suspension.retry, atLeast: .milliseconds(1),
            "The pause after a suspension that failed or was not idle; doubles each time in a row."),
        .duration(
            "suspension.retryMaximum", \.supervision.suspension.retryMaximum, atLeast: .milliseconds(1),
            "The longest such pause."),
    ]

    private static let wakes: [Key] = [
        .duration(
            "wakes.linger", \.supervision.wakes.linger,
            "How long a client stays awake after it has dealt with a wake."),
        .duration(
            "wakes.lingerMaximum", \.supervision.wakes.lingerMaximum,
            "The longest linger; it doubles with each wake over the limit."),
        .count(
            "wakes.limit", \.supervision.wakes.limit, 1...1_000_000,
            "More wakes of one client in a period are too many."),
        .count(
            "wakes.limitPerUser", \.supervision.wakes.limitPerUser, 1...1_000_000_000,
            "More wakes of all clients of one uid in a period are too many."),
        .duration(
            "wakes.period", \.supervision.wakes.period, atLeast: .seconds(1), "The period of these limits."),
    ]

    private static let launches: [Key] = [
        .duration(
            "launches.budget", \.supervision.launches.budget, atLeast: .milliseconds(10),
            "What a launched client may take to say who it is, and then to set up what wakes it."),
        .count(
            "launches.concurrent", \.supervision.launches.concurrent, 1...1_000_000,
            "Launches at a time that somebody waits for. Administrators have as much room again for themselves."
        ),
        .count(
            "launches.concurrentPerUser", \.supervision.launches.concurrentPerUser, 1...1_000_000,
            "As many of them may be of one uid."),
        .count(
            "launches.concurrentInBackground", \.supervision.launches.concurrentInBackground, 1...1_000_000,
            "Other launches at a time: after crashes, and as many at the start."),
        .count(
            "launches.concurrentInBackgroundPerUser",
            \.supervision.launches.concurrentInBackgroundPerUser, 1...1_000_000,
            "As many of them may be of one uid."),
        .count(
            "launches.relaunches", \.supervision.launches.relaunches, 0...255,
            "How often in a row a client that crashes is launched again."),
        .duration(
            "launches.settled", \.supervision.launches.settled,
            "Who has run this long was launched with success."),
        .duration(
            "launches.retry", \.supervision.launches.retry,
            "The pause before a client that crashed is launched again; doubles each time in a row."),
        .duration("launches.retryMaximum", \.supervision.launches.retryMaximum, "The longest such pause."),
    ]

    private static let memoryPressure: [Key] = [
        .file(
            "memoryPressure.file", \.pressureFile, limit: 4_000, mayBeEmpty: true,
            "Where the kernel tells of it: for the machine, or memory.pressure of a cgroup; nothing: not watched."
        ),
        .choice(
            "memoryPressure.share", \.pressureShare,
            "Whether some processes must have waited for memory, or all at the same time."),
        .duration(
            "memoryPressure.stall", \.pressureStall, atLeast: .milliseconds(1),
            "Memory is short when so much time is lost within the window."),
        .duration(
            "memoryPressure.window", \.pressureWindow, atLeast: .milliseconds(500),
            "The window: at most 10s, and whole multiples of 2s without CAP_SYS_RESOURCE."),
        .count(
            "memoryPressure.endsAtOnce", \.supervision.memoryPressure.endsAtOnce, 0...1_000_000,
            "Suspended clients that are ended each time, the largest first."),
        .duration(
            "memoryPressure.pause", \.supervision.memoryPressure.pause,
            "For this long nobody is launched that nobody waits for."),
        .choice(
            "memoryPressure.pageOut", \.pageOut,
            "Whether the memory of a suspended client is written to swap at once."),
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
            "quotas.backgroundTasksPerClient", \.supervision.quotas.backgroundTasksPerClient, 1...1_000_000,
            "Open background tasks of one client."),
        .count(
            "quotas.stateBytesPerClient", \.supervision.quotas.stateBytesPerClient, 0...122_880,
            "The size of the state that a client may leave for its next process."),
        .count(
            "quotas.stateBytesPerUser", \.supervision.quotas.stateBytesPerUser, 0...1_073_741_824,
            "The same for all clients of one uid together."),
    ]

    private static let rest: [Key] = [
        .duration(
            "helloTimeout", \.helloTimeout, atLeast: .milliseconds(10),
            "How long a new control connection may say nothing; then it is closed."),
        .count(
            "connectionsPerUser", \.connectionsPerUser, 1...1_000_000,
            "Control connections of one uid, clients and administration together."),
        .count(
            "messagesPerTurn", \.messagesPerTurn, 1...65_536,
            "Messages of one connection that are handled before it is the others' turn."),
        .count(
            "outgoingBytesPerConnection", \.outgoingBytesPerConnection, 131_072...1_073_741_824,
            "Bytes that may wait for a connection that does not read; more, and it is closed."),
    ]
}
