import Nightbell

/// Why a client uses processor time.
enum AwakeCause: String, CaseIterable {
    /// In use, as it says.
    case foreground
    /// It, or the program that launches it, is on its way to the background.
    case starting
    /// A background task.
    case assertion
    case media
    case fetch
    /// It handles messages of the push service.
    case push
    /// It handles a wake.
    case traffic
    /// Shortly after a wake: more may follow.
    case lingering
    /// It is being suspended or ended.
    case ending
    /// In the background for a reason of none of these kinds.
    case other

    /// Empty: it sleeps.
    static func causes(of client: ClientInfo) -> [AwakeCause] {
        switch client.state {
        case .suspended, .dormant, .notRunning, .unknown: return []
        case .active: return [.foreground]
        case .inactive, .launching: return [.starting]
        case .suspending, .terminating: return [.ending]
        case .background: break
        }
        var causes: [AwakeCause] = []
        if !client.backgroundTasks.isEmpty { causes.append(.assertion) }
        if client.isMediaActive { causes.append(.media) }
        if client.fetch?.isRunning == true { causes.append(.fetch) }
        if client.stateDetail.contains("a push") { causes.append(.push) }
        if client.stateDetail.contains("handling a wake") { causes.append(.traffic) }
        if client.stateDetail.contains("lingering") { causes.append(.lingering) }
        if client.stateDetail.contains("entering the background") || client.stateDetail.contains("setting up")
        {
            causes.append(.starting)
        }
        return causes.isEmpty ? [.other] : causes
    }
}
