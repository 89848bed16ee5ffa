/// The last reported facts about the machine, and what they have led to.
package struct MachineState: Sendable, Equatable {
    package internal(set) var network: NetworkFact?
    /// The fingerprint of the last network of which clients were, or are being, told; nil: of none. It
    /// outlives the supervisor.
    package internal(set) var handledNetwork: UInt64?
    /// nil: unknown.
    package internal(set) var isOnBattery: Bool?
    package internal(set) var isBatteryLow: Bool?
    /// The machine is about to sleep.
    package internal(set) var isSleepImminent = false
    /// Memory or processors are short.
    package internal(set) var isShort = false
    package internal(set) var unlockedUsers = Knowledge<Set<UserID>>.unknown
    /// By user, if something is known.
    var media: [UserID: UserMedia] = [:]
    /// The users with transfers that wait for a good moment.
    var discretionaryUsers: Set<UserID> = []
    /// The clients that have to finish something before the machine sleeps.
    var sleepPreparation: SleepPreparation?
    /// Keep-alive handlers have to run at the end of this turn, because the machine is about to sleep.
    var preparesForSleep = false
    var wishes = FactWishes()

    package init() {}
}

/// The kinds of facts that some client needs.
package struct FactNeeds: OptionSet, Sendable, Hashable {
    package let rawValue: UInt16

    package init(rawValue: UInt16) { self.rawValue = rawValue }

    package static let network = FactNeeds(rawValue: 1)
    package static let power = FactNeeds(rawValue: 2)
    package static let sleep = FactNeeds(rawValue: 4)
    package static let users = FactNeeds(rawValue: 8)
    package static let location = FactNeeds(rawValue: 16)
    package static let bluetooth = FactNeeds(rawValue: 32)
    package static let devices = FactNeeds(rawValue: 64)
}

/// How many clients and sockets need facts.
struct FactWishes: Sendable, Equatable {
    /// Clients that want to be told of another network.
    var networkChanges = 0
    /// Sockets with an address that the machine can lose.
    var routedSockets = 0
    /// Clients with the mode `fetch`.
    var fetches = 0
    /// Clients that observe pushes.
    var pushes = 0
    /// Clients that are not launched before their user's home is there.
    var unlocks = 0
    /// Clients that could have media now, of each user that has any.
    var media: [UserID: Int] = [:]
}

extension Supervision {
    /// The kinds of facts that some client needs now.
    package var neededFacts: FactNeeds {
        var needs: FactNeeds = []
        let wishes = machine.wishes
        let waiting = wishes.fetches + wishes.pushes + machine.discretionaryUsers.count
        if wishes.networkChanges + wishes.routedSockets + waiting > 0 { needs.insert(.network) }
        if waiting > 0 { needs.insert(.power) }
        // Clients that have to run before the machine sleeps, and those with a peer that must not find them
        // half asleep.
        if schedule.count + wishes.routedSockets > 0 { needs.insert(.sleep) }
        if wishes.unlocks > 0 { needs.insert(.users) }
        return needs.union(observationDemand.needs)
    }

    /// Adds a client to the wishes, or removes it: before its registration changes, and after.
    mutating func countWishes(of client: ClientID, _ count: Int) {
        if clients[client.id].wantsNetworkChanges { machine.wishes.networkChanges += count }
        if clients[client.id].modes.contains(.fetch) { machine.wishes.fetches += count }
        if clients[client.id].waitsForUnlock { machine.wishes.unlocks += count }
        countMedia(of: client, count)
    }

    /// Takes note of a fact, and acts on the difference to what was known.
    mutating func learn(_ fact: Fact, at now: Instant, into actions: inout ActionBuffer) {
        switch fact {
        case .network(let network):
            learnNetwork(network, into: &actions)
            lookAtWaitingPushes(at: now)
        case .power(let isOnBattery, let isLow):
            (machine.isOnBattery, machine.isBatteryLow) = (isOnBattery, isLow)
            lookAtWaitingPushes(at: now)
        case .sleepImminent(let isDelayed):
            guard !machine.isSleepImminent else { return }
            machine.isSleepImminent = true
            machine.preparesForSleep = isDelayed && !isStopping
        case .resumed:
            machine.isSleepImminent = false
            machine.preparesForSleep = false
            machine.sleepPreparation = nil
        case .wallClock(let offset):
            fetches.change(WallClock(offset: offset), at: elapsed(at: now))
        case .shortage(let isShort):
            machine.isShort = isShort
        case .unlocked(let users):
            machine.unlockedUsers = users
            launchUnlocked(at: now, into: &actions)
        case .position(let position):
            learnPosition(position, at: now, into: &actions)
        case .bluetooth(let devices):
            learnBluetooth(devices, at: now, into: &actions)
        case .characteristic(let path, let value):
            learnValue(path, value, at: now, into: &actions)
        case .accessories(let accessories):
            learnAccessories(accessories, at: now, into: &actions)
        case .transfers(let ended):
            learnTransfers(ended, at: now, into: &actions)
        case .discretionaryTransfers(let user, let waits):
            if waits {
                machine.discretionaryUsers.insert(user)
            } else {
                machine.discretionaryUsers.remove(user)
            }
        case .pushes(let waiting):
            learnPushes(waiting, at: now, into: &actions)
        case .pushServiceChanged:
            forgetPushService()
        case .media(let user, let media):
            learnMedia(of: user, media, at: now, into: &actions)
        case .clock(let clock):
            learnNotificationClock(clock, at: now, into: &actions)
        case .notifications(let user, let fact):
            learnNotifications(fact, of: user, at: now, into: &actions)
        }
        permitFetches(at: now)
    }
}
