import LinuxSystem
import NightbellCore
import SwiftProtobuf
import TransferWire

/// Learning from the transfer processes which clients have to be woken.
extension Supervisor {
    /// Reads what a process has said; the rest of a flood waits for the next turn.
    ///
    /// - Returns: whether there may be more.
    func receiveNotices(_ service: TransferService, atMost count: Int) -> Bool {
        for _ in 0..<count {
            guard let process = service.process else { return false }
            do throws(SystemError) {
                switch try process.connection.receive(into: &packet) {
                case .wouldBlock: return false
                case .end:
                    // Its status tells the rest.
                    process.stopReading()
                    service.mustEndBy = now + TransferService.endingTime
                    transferCare.look(at: now + TransferService.endingTime)
                    return false
                case .packet(let length, let isTruncated, _):
                    guard !isTruncated, length <= TransferPacket.maximumBytes,
                        let notice = try? WireTransferNotice(serializedBytes: packet.bytes),
                        take(notice, service)
                    else {
                        replace(service, "it sends what is no notice")
                        return false
                    }
                    guard service.history.admitReport(at: now) else {
                        replace(service, "it sends too much")
                        return false
                    }
                }
            } catch {
                replace(service, "its connection failed: \(error)")
                return false
            }
        }
        return true
    }

    /// False: a value is out of its range.
    private func take(_ notice: WireTransferNotice, _ service: TransferService) -> Bool {
        switch notice.notice {
        case .end(let end):
            // Any process of the user can open a session, also for a client that there cannot be.
            guard let client = ClientIdentifier(end.client) else { return true }
            guard let ended = EndedTransfers(end, of: service.user, client) else { return false }
            if ended.session == Supervision.newsstand {
                launchSubscriber(ended.client, of: service.user)
            } else {
                declareAbsent(ended.client, of: service.user)
            }
            feed(.fact(.transfers(ended)))
            FaultInjection.point("after transfers are reported")
        case .plan(let plan):
            service.noteNextIssue(plan.nextIssueS)
            if service.nextIssue != nil { watchClock() }
            if service.hasDiscretionary != plan.hasDiscretionary_p {
                service.hasDiscretionary = plan.hasDiscretionary_p
                feed(.fact(.discretionaryTransfers(of: service.user, plan.hasDiscretionary_p)))
            }
            transferCare.look(at: now)
        case nil:
            return false
        }
        return true
    }

    /// An issue is there for a client without a record. It is launched at once: as the end of a transfer that can
    /// wait, it would be told with the next wake of another client.
    private func launchSubscriber(_ client: ClientIdentifier, of user: UserID) {
        guard let declaration = absentDeclaration(of: client, user), declaration.subscriber == user,
            supervision.ownership(of: client)?.isQuit != true
        else { return }
        launchAbsent(declaration, isRequested: false)
    }
}

extension EndedTransfers {
    /// nil: a value is out of its range.
    fileprivate init?(_ end: WireTransferEnd, of user: UserID, _ client: ClientIdentifier) {
        guard end.number > 0, (1...Subject.longestPath).contains(end.session.utf8.count) else { return nil }
        self.init(
            of: user, client, session: end.session, number: end.number, mayWait: end.isDiscretionary)
    }
}
