"""An update of a policy over actions, with the options of both its parts."""

from crbc_jax.learner import row_losses, update


def make_action_update(logits_fn, optimizer, **options):
  """`update.make_update_fn` of `row_losses.make_action_loss`."""
  of_loss = {
    name: options.pop(name) for name in ("clip", "entropy_weight", "kl_weight")
  }
  return update.make_update_fn(
    row_losses.make_action_loss(logits_fn, **of_loss), optimizer, **options
  )
