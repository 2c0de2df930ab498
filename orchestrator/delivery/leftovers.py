"""What a killed run left in a spool of this machine, into the store without a detour over the network."""

from orchestrator.delivery.committing import Committer, Tell
from orchestrator.delivery.parcels import Outcome
from orchestrator.delivery.spool import DamagedError, Spool


def deliver_leftovers(spool: Spool, committer: Committer, tell: Tell, *, wait_for_room: bool = True) -> int:
    """Stores what waits in a spool.

    Args:
        spool: on this machine; nothing else may deliver from it at the same time for long.
        committer: of the store that the spool belongs to.
        tell: told what could not be stored, and why.
        wait_for_room: wait while the disk of the store is full; else everything stays where it is.

    Returns:
        How many parcels had something that was not stored before.

    Raises:
        StoreError: the store takes nothing more; never if `wait_for_room` is false.
        SpoolError: the spool cannot be read.
    """
    stored = 0
    for path in spool.pending():
        try:
            parcel = spool.read(path)
        except DamagedError as error:
            tell(str(error))
            continue
        if parcel is None:
            continue
        answer = committer.deliver(parcel) if wait_for_room else committer.try_to_deliver(parcel)
        if answer.outcome is Outcome.LATER:
            break
        if answer.outcome is Outcome.REFUSED:
            place = spool.set_aside(path)
            tell(f"a record that waited to be delivered was refused: {answer.reason}; it is kept as {place}")
        elif answer.outcome is Outcome.DUPLICATE and answer.reason:
            spool.set_aside(path)
        else:
            stored += answer.outcome is Outcome.STORED
            spool.remove(path)
    return stored
