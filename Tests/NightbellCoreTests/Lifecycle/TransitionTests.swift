import NightbellCore
import Testing

@Suite("Every state × every event")
struct TransitionTests {
    @Test(arguments: Happening.allCases)
    func everyPhaseHasExactlyOneExpectation(_ happening: Happening) {
        let listed = Transitions.row(happening).flatMap(\.phases)
        for phase in Phase.allCases {
            #expect(listed.filter { $0 == phase }.count == 1, "\(happening) in \(phase)")
        }
    }

    @Test(arguments: Happening.allCases)
    func comesToWhatTheTableSays(_ happening: Happening) throws {
        for (phases, expected) in Transitions.row(happening) {
            for phase in phases {
                var cell = try Cell(phase)
                #expect(cell.happens(happening) == expected, "\(happening) in \(phase)")
            }
        }
    }

    /// A cell is in the phase that it is named after; otherwise the table would prove little.
    @Test(arguments: [
        (Phase.gone, "notRunning"), (.inactive, "inactive"), (.active, "active"),
        (.entering, "background(entering)"), (.openWake, "background(wake)"),
        (.lingering, "background(linger)"), (.heldByTask, "background(task)"),
        (.heldByMedia, "background(media)"), (.preparing, "suspending"), (.freezing, "suspending"),
        (.suspended, "suspended"), (.noticed, "terminating"), (.killed, "terminating"),
        (.resting, "dormant"), (.pausing, "dormant(pausing)"), (.queued, "dormant(queued)"),
        (.launching, "launching"),
    ])
    func cellsStartWhereTheySay(_ pair: (phase: Phase, words: String)) throws {
        let cell = try Cell(pair.phase)
        #expect(phase(of: cell.client, in: cell.bench) == pair.words)
    }

    /// Every answer names the right request and client.
    @Test(arguments: Phase.allCases, Happening.allCases)
    func actionsNameTheRightClientAndRequest(_ phase: Phase, _ happening: Happening) throws {
        var cell = try Cell(phase)
        _ = cell.happens(happening)
        let again: Set<Happening> = [.registerAgain, .declare]
        for action in cell.bench.actions.actions {
            switch action {
            case .answer(_, let client, let key), .handedOver(_, let client, let key),
                .rejoined(let client, let key):
                #expect(client == cell.client && key == Bench.key)
            case .registered(_, let key), .refuseRegistration(_, let key), .commandAnswer(_, let key):
                #expect(key == Bench.key)
            case .notify(let client, _), .freeze(let client, _), .checkFreeze(let client, _),
                .thaw(let client), .inspectPaths(let client), .kill(let client, _),
                .forget(let client, _, _), .trace(let client, _),
                .makeDormant(let client), .launch(let client), .declared(let client), .storeState(let client),
                .dropState(let client):
                #expect(client == cell.client || again.contains(happening))
            case .arm(let token), .armPastEnd(let token), .close(let token, _), .beginOffload(let token),
                .endOffload(let token),
                .ping(let token, _), .lookForAnswer(let token):
                #expect(token == cell.socket)
            }
        }
    }
}
