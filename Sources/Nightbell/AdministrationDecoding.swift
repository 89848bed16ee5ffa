package import NightbellWire

extension SupervisorStatus {
    package init(_ wire: WireSupervisorStatus) {
        version = wire.version
        processID = Int32(clamping: wire.processID)
        keeperProcessID = wire.keeperProcessID == 0 ? nil : Int32(clamping: wire.keeperProcessID)
        restarts = Int(clamping: wire.restarts)
        uptime = .milliseconds(Int64(clamping: wire.uptimeMs))
        suspension = wire.suspension
        suspensionDetail = wire.suspensionDetail
        configurationFile = wire.configurationFile.isEmpty ? nil : wire.configurationFile
        clientsByState = wire.clientsByState.mapValues(Int.init(clamping:))
        sockets = Int(clamping: wire.sockets)
        connections = Int(clamping: wire.connections)
        launchBudget = .milliseconds(Int64(clamping: wire.launchBudgetMs))
        counters = SupervisionCounters(wire.counters)
        offloadByProfile = wire.offloadByProfile.mapValues(OffloadCounters.init)
        memoryReclaimedBytes = wire.memoryReclaimedBytes
        users = wire.users.map(User.init)
        descriptorsOpen = Int(clamping: wire.descriptorsOpen)
        descriptorsLimit = Int(clamping: wire.descriptorsLimit)
        nextDeadline = wire.noDeadline ? nil : .milliseconds(Int64(clamping: wire.nextDeadlineMs))
        isStopping = wire.stopping
        memoryBytes = wire.memoryBytes
        warnings = wire.warnings
        sources = wire.sources.map { Source(name: $0.name, isAvailable: $0.isAvailable, reason: $0.reason) }
        monitorProcessID = wire.monitorProcessID == 0 ? nil : Int32(clamping: wire.monitorProcessID)
        alarmProblem = wire.alarmProblem
        notRunning = wire.notRunning
        notRunningUnnamed = Int(wire.notRunningUnnamed)
        pushSocket = wire.pushSocket
    }
}

extension ReloadReport {
    package init(_ wire: WireReloaded) {
        self.init(changed: wire.changed, kept: wire.kept, problems: wire.problems)
    }
}

extension SupervisorStatus.User {
    init(_ wire: WireUserCounters) {
        uid = wire.uid
        clients = Int(clamping: wire.clients)
        sockets = Int(clamping: wire.sockets)
        wakes = Int(clamping: wire.wakes)
    }
}

extension SupervisionCounters {
    init(_ wire: WireCounters) {
        counts = wire.counts.mapValues(Int.init(clamping:))
        asleep = .nanoseconds(Int64(clamping: wire.asleepNs))
    }
}

extension ClientInfo {
    package init(_ wire: WireClientInfo) {
        identifier = wire.identifier
        clientID = wire.clientID
        processID = Int32(clamping: wire.processID)
        uid = wire.uid
        state = State(wire.state)
        stateDetail = wire.stateDetail
        inState = .milliseconds(Int64(clamping: wire.inStateMs))
        connected = .milliseconds(Int64(clamping: wire.connectedMs))
        asleepSinceConnected = .nanoseconds(Int64(clamping: wire.asleepSinceHelloNs))
        modes = Set(wire.modes.compactMap(Mode.init(decoding:)))
        socketCount = Int(clamping: wire.socketCount)
        sockets = wire.sockets.map(Socket.init)
        keepAliveTimeout =
            wire.keepAliveTimeoutMs == 0 ? nil : .milliseconds(Int64(clamping: wire.keepAliveTimeoutMs))
        keepAliveDueIn =
            wire.keepAliveDueInMs == 0 ? nil : .milliseconds(Int64(clamping: wire.keepAliveDueInMs))
        backgroundTasks = wire.backgroundTasks
        isMediaActive = wire.mediaActive
        counters = SupervisionCounters(wire.counters)
        offload = wire.hasOffload ? OffloadCounters(wire.offload) : nil
        launch = wire.hasLaunch ? Launch(wire.launch) : nil
        suspension = wire.suspension
        warnings = wire.warnings
        canLaunch = wire.canLaunch
        stateBytes = Int(clamping: wire.stateBytes)
        launchesInRow = Int(clamping: wire.launchesInRow)
        wantsNetworkChanges = wire.wantsNetworkChanges
        pendingNotifications = Int(wire.pendingNotifications)
        isUnmodified = wire.isUnmodified
        pagedOut = wire.hasPagedOut ? PagedOut(wire.pagedOut) : nil
        fetch = wire.hasFetch ? Fetch(wire.fetch) : nil
        observations = wire.observations.compactMap(Observation.init)
        awakeCauses = wire.awakeCauses.map(AwakeCause.init)
    }
}

extension ClientInfo.AwakeCause {
    init(_ wire: WireAwakeCause) {
        self =
            switch wire {
            case .foreground: .foreground
            case .starting: .starting
            case .assertion: .assertion
            case .media: .media
            case .fetch: .fetch
            case .push: .push
            case .traffic: .traffic
            case .lingering: .lingering
            case .ending: .ending
            case .other, .unspecified, .UNRECOGNIZED: .other
            }
    }
}

extension ClientInfo.State {
    init(_ wire: WireClientState) {
        self =
            switch wire {
            case .notRunning: .notRunning
            case .inactive: .inactive
            case .active: .active
            case .background: .background
            case .suspending: .suspending
            case .suspended: .suspended
            case .terminating: .terminating
            case .dormant: .dormant
            case .launching: .launching
            case .unspecified, .UNRECOGNIZED: .unknown
            }
    }
}

extension ClientInfo.PagedOut {
    init(_ wire: WirePagedOut) {
        self.init(bytes: wire.bytes, totalBytes: wire.totalBytes, limit: wire.limit)
    }

    var wire: WirePagedOut {
        var wire = WirePagedOut()
        wire.bytes = bytes
        wire.totalBytes = totalBytes
        wire.limit = limit
        return wire
    }
}

extension ClientInfo.Socket {
    init(_ wire: WireClientInfo.Socket) {
        token = wire.token
        tag = SocketTag(decoding: wire.tag)
        name = wire.name
        kind = wire.kind
        local = wire.local
        peer = wire.peer
        condition = wire.condition
        offload = wire.hasOffload ? ClientInfo.Offload(wire.offload) : nil
        survives = wire.survives
        receiveBuffer = Int(wire.receiveBuffer)
        dropped = Int(clamping: wire.dropped)
    }
}

extension ClientInfo.Observation {
    /// nil: it is from a newer supervisor.
    init?(_ wire: WireClientInfo.Observation) {
        guard let subject = Subject(wire.observe) else { return nil }
        name = wire.observe.name
        self.subject = subject
        latest = Occurrence(wire.latest)
        latestAgo = latest == nil ? nil : .milliseconds(Int64(clamping: wire.latestAgoMs))
        isTold = wire.isTold
        pushObstacle = PushObstacle(wire.waitsFor)
    }
}

extension ClientInfo.Observation.PushObstacle {
    init?(_ wire: WirePushObstacle) {
        switch wire {
        case .underWay: self = .underWay
        case .failed: self = .failed
        case .tooMany: self = .tooMany
        case .conditions: self = .conditions
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}

extension ClientInfo.Fetch.Obstacle {
    init?(_ wire: WireFetchObstacle) {
        switch wire {
        case .networkDown: self = .networkDown
        case .shortage: self = .shortage
        case .machineSleeps: self = .machineSleeps
        case .places: self = .places
        case .placesOfUser: self = .placesOfUser
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}

extension ClientInfo.Fetch {
    init(_ wire: WireClientInfo.Fetch) {
        minimumInterval =
            switch wire.minimumIntervalMs {
            case ..<0: .never
            case 0: .minimum
            default: .atLeast(.milliseconds(wire.minimumIntervalMs))
            }
        score = Int(wire.score)
        next = wire.nextInMs == 0 ? nil : .milliseconds(Int64(clamping: wire.nextInMs))
        isRunning = wire.isFetching
        obstacle = Obstacle(wire.obstacle)
        lastAgo = wire.lastAgoMs == 0 ? nil : .milliseconds(Int64(clamping: wire.lastAgoMs))
        observedDays = Int(wire.observedDays)
        usualHours = wire.usualHours.map(Int.init)
        unfinishedInRow = Int(wire.unfinishedInRow)
    }
}

extension OffloadCounters {
    init(_ wire: WireOffloadCounters) {
        sent = Int(clamping: wire.sent)
        confirmed = Int(clamping: wire.confirmed)
        answered = Int(clamping: wire.answered)
        absorbed = Int(clamping: wire.absorbed)
        wakesAvoided = Int(clamping: wire.wakesAvoided)
    }
}

extension ClientInfo.Offload {
    init(_ wire: WireClientInfo.Socket.Offload) {
        profile = wire.profile
        isActive = wire.active
        counters = OffloadCounters(wire.counters)
        isAwaitingAnswer = wire.awaitingAnswer
        nextPing = wire.nextPingInMs == 0 ? nil : .milliseconds(Int64(clamping: wire.nextPingInMs))
    }
}

extension ClientInfo.Launch {
    init(_ wire: WireLaunchSpecification) {
        arguments = wire.arguments
        directory = wire.directory
        environment = wire.environment
    }
}

extension ClientEvent {
    package init(_ wire: WireWatchEvent) {
        unixNanoseconds = wire.atUnixNs
        identifier = wire.identifier
        kind = wire.kind
        detail = wire.detail
        state = ClientInfo.State(wire.state)
        dropped = Int(clamping: wire.dropped)
    }
}

extension Mode {
    fileprivate init?(decoding wire: WireMode) {
        switch wire {
        case .voip: self = .voip
        case .audio: self = .audio
        case .fetch: self = .fetch
        case .location: self = .location
        case .bluetoothCentral: self = .bluetoothCentral
        case .bluetoothPeripheral: self = .bluetoothPeripheral
        case .externalAccessory: self = .externalAccessory
        case .newsstand: self = .newsstand
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}

extension SocketTag {
    fileprivate init?(decoding wire: WireSocketTag) {
        switch wire {
        case .voip: self = .voip
        case .listener: self = .listener
        case .device: self = .device
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}
