import Logging
import NightbellCore
import SwiftProtobuf
import TransferModel
import TransferWire

/// Messages to the transfer processes: clients that were quit, subscriptions to issues, and good moments.
extension Supervisor {
    // MARK: Clients that were quit

    /// Of these identifiers, those that were quit have no transfers any more.
    func cancelTransfers(ofQuit identifiers: [ClientIdentifier]) {
        guard configuration.transfers != nil else { return }
        for identifier in identifiers {
            guard let owner = supervision.ownership(of: identifier), owner.isQuit else { continue }
            transferCare.quits.append((owner.user, identifier.description))
            transferCare.look(at: now)
        }
    }

    /// Some of these may have been quit, or have come back.
    func tellSubscriptions(ofClients identifiers: [ClientIdentifier]) {
        tellSubscriptions(of: Set(identifiers.compactMap { launches.declarations[$0]?.subscriber }))
    }

    func takeQuits() {
        let quits = transferCare.quits
        transferCare.quits = []
        for (user, client) in quits {
            guard transferCare.services[user] != nil || hasWork(user),
                let service = serveTransfers(of: user)
            else { continue }
            if service.process != nil {
                service.unsent.append(.with { $0.quitClients = [client] })
            } else if hasWork(user) {
                service.quits.insert(client)
                service.isWanted = true
            }
        }
    }

    /// The first demands to a process: it serves no client before it knows all that were quit.
    func firstDemands(_ service: TransferService) -> [WireTransferDemand] {
        var names = service.quits
        ask { core in
            for identifier in core.identifiers {
                guard let owner = core.ownership(of: identifier), owner.isQuit, owner.user == service.user
                else { continue }
                names.insert(identifier.description)
            }
        }
        var left = names.sorted()[...]
        var demands: [WireTransferDemand] = []
        repeat {
            let part = left.prefix(TransferService.namesAtOnce)
            left = left.dropFirst(part.count)
            demands.append(
                .with {
                    $0.quitClients = Array(part)
                    $0.hasMore_p = !left.isEmpty
                })
        } while !left.isEmpty
        demands[0].moment = transferCare.isGoodMoment ? .good : .bad
        // Before the last names: what it needs is known once it serves clients.
        let subscriptions = demandedSubscriptions(of: service.user).map { demand in
            var demand = demand
            demand.hasMore_p = true
            return demand
        }
        return subscriptions + demands
    }

    // MARK: Issues

    /// The subscriptions of a user's clients, without those that were quit.
    func demandedSubscriptions(of user: UserID) -> [WireTransferDemand] {
        let subscribers = launches.declarations.values.filter { declaration in
            declaration.subscriber == user
                && supervision.ownership(of: declaration.registration.identifier)?.isQuit != true
        }
        var left = subscribers.compactMap { declaration in
            declaration.newsstand.map { subscription in
                WireTransferSubscription.with {
                    $0.client = declaration.registration.identifier.description
                    $0.url = subscription.url.text
                    $0.intervalS = UInt64(clamping: subscription.interval)
                }
            }
        }.sorted { $0.client < $1.client }[...]
        var demands: [WireTransferDemand] = []
        repeat {
            let part = left.prefix(TransferService.subscriptionsAtOnce)
            left = left.dropFirst(part.count)
            demands.append(
                .with {
                    $0.subscriptions.subscriptions = Array(part)
                    $0.subscriptions.hasMore_p = !left.isEmpty
                })
        } while !left.isEmpty
        return demands
    }

    /// The subscriptions of these users have changed, or are new.
    func tellSubscriptions(of users: Set<UserID>) {
        guard configuration.transfers != nil else { return }
        for user in users.sorted() {
            guard let service = serveTransfers(of: user) else {
                log(.transfers, .warning, of: user, "no issues come for uid \(user): it has no transfers")
                continue
            }
            if service.process == nil {
                service.isWanted = true
            } else {
                service.owesSubscriptions = true
            }
            transferCare.look(at: now)
        }
    }

    /// Issues are begun by the clock on the wall, which has gone on while the machine slept.
    func lookAtIssues() {
        guard transferCare.services.values.contains(where: { $0.nextIssue != nil }) else { return }
        transferCare.look(at: now)
    }

    /// Issues that were begun after what is now the present begin anew, which a process sees to. It also says
    /// when it is needed next.
    func startForIssues() {
        for service in transferCare.services.values where service.nextIssue != nil && service.process == nil {
            service.isWanted = true
        }
        lookAtIssues()
    }

    // MARK: The moment

    /// Tells all processes when discretionary transfers may run, or may not any more.
    func judgeMoment() {
        if !ask({ $0.hasDiscretionaryTransfers }) { transferCare.judgesFrom = nil }
        let isGood = ask { $0.isGoodMomentForTransfers } && isMachineKnown
        guard isGood != transferCare.isGoodMoment else { return }
        transferCare.isGoodMoment = isGood
        for service in transferCare.services.values {
            if service.process != nil {
                service.unsent.append(.with { $0.moment = isGood ? .good : .bad })
            } else if isGood, service.hasDiscretionary {
                service.isWanted = true
            }
        }
        transferCare.look(at: now)
    }

    /// Whether the monitor has told of the network and of power, or has had time for that since transfers wait, or since
    /// it has ended.
    private var isMachineKnown: Bool {
        guard configuration.monitor != nil,
            ask({ $0.machine.network == nil || $0.machine.isOnBattery == nil })
        else { return true }
        let from = transferCare.judgesFrom ?? now + TransferCare.judgingTime
        transferCare.judgesFrom = from
        if now < from { transferCare.look(at: from) }
        return now >= from
    }
}

extension Declaration {
    /// The user of a client that subscribes to issues.
    var subscriber: UserID? { newsstand.map { _ in registration.user } }
}
