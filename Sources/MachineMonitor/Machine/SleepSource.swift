import LinuxSystem
import NightbellWire

/// The machine's sleep, by logind: told before it comes, and delayed while the supervisor wants it.
final class SleepSource: Source {
    private let context: SourceContext
    private var service: BusService?
    private var announcements: BusSubscription?
    private var properties: BusProperties?
    private var isImminent = false
    private var isKnown = false
    private var isDelayWanted = false
    /// logind waits for its end, for 5 s by default.
    private var delay: OwnedDescriptor?
    /// It was taken from a connection to logind that was given up, and is kept until the next one has
    /// another.
    private var isDelayOld = false
    private var isAsking = false

    init(_ context: SourceContext) {
        self.context = context
        let service = BusService(context.buses.system(), name: Logind.name) { [unowned self] presence in
            handle(presence)
        }
        self.service = service
        announcements = service.subscribe(
            BusSubscription.Rule(path: Logind.path, interface: Logind.manager, member: "PrepareForSleep")
        ) { [unowned self] (message) throws(BusError) in
            isImminent = try message.bool()
            isKnown = true
            report()
        }
        properties = BusProperties(
            service, path: Logind.path, interface: Logind.manager,
            onValue: { [unowned self] name, value in
                if name == "PreparingForSleep", case .bool(let isImminent) = value {
                    self.isImminent = isImminent
                }
            },
            onRead: { [unowned self] _ in
                // A version without the property announces sleep all the same.
                isKnown = true
                report()
            })
        service.begin()
    }

    func update(_ demand: WireMonitorDemand) {
        isDelayWanted = demand.delaysSleep
        if isDelayWanted {
            takeDelay()
        } else if delay != nil {
            delay = nil
            report()
        }
    }

    private func handle(_ presence: BusService.Presence) {
        switch presence {
        case .present:
            reset(keepsDelay: isDelayOld)
            properties?.read()
            if isDelayWanted { takeDelay() }
        case .doubtful: properties?.read()
        case .absent(let absence):
            reset(keepsDelay: absence.isTemporary)
            isDelayOld = delay != nil
            context.reports.setAbsent(.sleep, absence)
        }
    }

    private func reset(keepsDelay: Bool) {
        // An inhibitor of an earlier logind is taken over by the next one, but not by every version.
        if !keepsDelay { delay = nil }
        isAsking = false
        isKnown = false
        isImminent = false
    }

    private func takeDelay() {
        guard delay == nil || isDelayOld, !isAsking, let service, service.owner != nil else { return }
        isAsking = true
        service.call(
            Logind.path, Logind.manager, "Inhibit",
            { (writer) throws(BusError) in
                for text in ["sleep", "Nightbell", "Sleeping clients are prepared", "delay"] {
                    try writer.text(text)
                }
            },
            reply: { [unowned self] reply in
                isAsking = false
                isDelayOld = false
                // A refusal leaves the machine as it is: sleep comes without a delay, and the report says so.
                guard isDelayWanted, let descriptor = try? reply.get().descriptor() else { return report() }
                delay = try? OwnedDescriptor(duplicating: descriptor)
                report()
            })
    }

    private func report() {
        guard isKnown else { return }
        context.reports.setAvailability(.sleep, reason: nil)
        var sleep = WireMonitorReport.Sleep()
        sleep.isImminent = isImminent
        sleep.isDelayed = delay != nil
        context.reports.report(.sleep, .sleep(sleep))
    }
}
